#include "base/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

int dlab_cores_of_quota(const char *cpu_max)
{
    char *end = NULL;
    long long quota = strtoll(cpu_max, &end, 10);
    if (end == cpu_max || quota <= 0) return 0; /* "max …" */
    char *after = NULL;
    long long period = strtoll(end, &after, 10);
    if (after == end || period <= 0) return 0;
    long long cores = quota / period + (quota % period != 0);
    return cores < INT_MAX ? (int)cores : 0;
}

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

static int least_quota(void)
{
    char group[PATH_MAX], file[PATH_MAX + 16], text[128];
    int least = 0;
    if (!group_of_process(group, sizeof group)) return 0;
    for (;;) {
        snprintf(file, sizeof file, "%s/cpu.max", group);
        int cores = read_line(file, text, sizeof text) ? dlab_cores_of_quota(text) : 0;
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < sizeof CGROUP_ROOT - 1) return least;
        *slash = 0;
    }
}

int dlab_cores_usable(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, quota = least_quota();
    if (quota > 0 && quota < cores) cores = quota;
    return cores > 0 ? cores : 1;
}
