/* How many cores this process may use. */
#ifndef DLAB_BASE_CORES_H
#define DLAB_BASE_CORES_H

/* The least of the affinity mask and of the CPU quotas of our control group and those above it (cgroup v2's cpu.max,
 * rounded up); at least 1. Threads beyond it would only wait for each other. */
int dlab_cores_usable(void);

/* CPUs that our control group and those above it may use at once, a fraction possibly; 0: no limit. Version 2's cpu.max,
 * else version 1's cpu.cfs_quota_us. */
double dlab_cpu_quota(void);

/* From the content of cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD" for no limit, 0. */
double dlab_cpu_quota_of(const char *cpu_max);

/* The same as whole cores, rounded up; 0: no bound. */
int dlab_cores_of_quota(const char *cpu_max);

#endif
