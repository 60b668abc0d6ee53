#include "base/cores.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

double dlab_cpu_quota_of(const char *cpu_max)
{
    char *end = NULL, *after = NULL;
    double quota = strtod(cpu_max, &end);
    if (end == cpu_max) return 0;
    double period = strtod(end, &after);
    return after != end && quota > 0 && period > 0 ? quota / period : 0;
}

static int whole_cores(double quota) { return quota > 0 && quota < INT_MAX ? (int)ceil(quota) : 0; }

int dlab_cores_of_quota(const char *cpu_max) { return whole_cores(dlab_cpu_quota_of(cpu_max)); }

static int read_line(const char *path, char *buf, int size)
{
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    int ok = fgets(buf, size, f) != NULL;
    fclose(f);
    if (ok) buf[strcspn(buf, "\n")] = 0;
    return ok;
}

/* Our group's folder below the root, from the line "0::/path". */
static int group_of_process(char *path, size_t size)
{
    char line[PATH_MAX];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return 0;
    int found = 0;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        found = strncmp(line, "0::/", 4) == 0;
    }
    fclose(f);
    return found && (size_t)snprintf(path, size, "%s%s", CGROUP_ROOT, line + 3) < size;
}

/* The least of our group's and its ancestors' quotas, as far as they can be seen here. */
static double least_quota(void)
{
    char group[PATH_MAX], file[PATH_MAX + 16], text[128];
    double least = 0;
    if (!group_of_process(group, sizeof group)) return 0;
    for (;;) {
        snprintf(file, sizeof file, "%s/cpu.max", group);
        double cpus = read_line(file, text, sizeof text) ? dlab_cpu_quota_of(text) : 0;
        if (cpus > 0 && (least <= 0 || cpus < least)) least = cpus;
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < sizeof CGROUP_ROOT - 1) return least;
        *slash = 0;
    }
}

double dlab_cpu_quota(void)
{
    double cpus = least_quota();
    char quota[64], both[160], period[64];
    if (cpus > 0 || !read_line(CGROUP_ROOT "/cpu/cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_line(CGROUP_ROOT "/cpu/cpu.cfs_period_us", period, sizeof period)) {
        return cpus;
    }
    snprintf(both, sizeof both, "%s %s", quota, period);
    return dlab_cpu_quota_of(both);
}

int dlab_cores_usable(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1,
        quota = whole_cores(dlab_cpu_quota());
    if (quota > 0 && quota < cores) cores = quota;
    return cores > 0 ? cores : 1;
}
