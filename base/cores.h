/* How many cores this process may use. */
#ifndef DLAB_BASE_CORES_H
#define DLAB_BASE_CORES_H

/* The least of the affinity mask and of the CPU quotas of our control group and those above it (cgroup v2's cpu.max,
 * rounded up); at least 1. Threads beyond it would only wait for each other. */
int dlab_cores_usable(void);

/* Cores that a cpu.max file allows ("QUOTA PERIOD" in microseconds, rounded up), or 0 for no bound or an unreadable text. */
int dlab_cores_of_quota(const char *cpu_max);

#endif
