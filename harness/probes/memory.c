/* Memory of this process and of the machine, from /proc and the cgroup. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/probes/probes.h"
#include "harness/probes/read.h"

bool dlab_probe_read(const char *path, char *buf, size_t size)
{
    *buf = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    while (n + 1 < size) {
        ssize_t got = read(fd, buf + n, size - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    buf[n] = 0;
    close(fd);
    return n > 0;
}

bool dlab_probe_field(const char *text, const char *name, char *buf, size_t size)
{
    size_t len = strlen(name);
    *buf = 0;
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, len) != 0) continue;
        const char *c = line + len;
        c += strspn(c, " \t");
        if (*c != ':') continue;
        c += 1 + strspn(c + 1, " \t");
        snprintf(buf, size, "%.*s", (int)strcspn(c, "\n"), c);
        return *buf != 0;
    }
    return false;
}

/* "123456 kB" → bytes; −1 if it is not that. */
static int64_t kib_field(const char *text, const char *name)
{
    char value[64], *end = NULL;
    if (!dlab_probe_field(text, name, value, sizeof value)) return -1;
    errno = 0;
    long long kib = strtoll(value, &end, 10);
    if (errno || end == value || kib < 0 || kib > INT64_MAX / 1024) return -1;
    return kib * 1024;
}

static int64_t status_bytes(const char *name)
{
    char text[4096];
    return dlab_probe_read("/proc/self/status", text, sizeof text) ? kib_field(text, name) : -1;
}

int64_t dlab_probe_rss_bytes(void)
{
    char text[256];
    long long pages = 0;
    if (!dlab_probe_read("/proc/self/statm", text, sizeof text)) return -1;
    char *end = strchr(text, ' '), *stop = NULL;
    if (!end) return -1;
    pages = strtoll(end, &stop, 10);
    return stop == end || pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

int64_t dlab_probe_rss_peak_bytes(void) { return status_bytes("VmHWM"); }

bool dlab_probe_rss_reset(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = write(fd, "5", 1) == 1; /* 5: VmHWM := VmRSS */
    close(fd);
    return done;
}

int64_t dlab_probe_memory_total_bytes(void)
{
    char text[4096];
    return dlab_probe_read("/proc/meminfo", text, sizeof text) ? kib_field(text, "MemTotal") : -1;
}

static int64_t number_in(const char *folder, const char *name)
{
    char path[PATH_MAX], text[64], *end = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!dlab_probe_read(path, text, sizeof text)) return -1;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return errno || end == text || v < 0 ? -1 : v; /* "max" is no number: no limit */
}

/* What a cgroup's limit leaves, the page cache that it can drop included; −1: no limit. */
static int64_t cgroup_room(const char *folder, const char *limit_name, const char *usage_name)
{
    int64_t limit = number_in(folder, limit_name), usage = number_in(folder, usage_name), cache = 0;
    if (limit < 0 || usage < 0 || limit > INT64_MAX / 2) return -1;
    char path[PATH_MAX], text[8192];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (dlab_probe_read(path, text, sizeof text)) {
        const char *at = strstr(text, "inactive_file ");
        if (at) cache = strtoll(at + 14, NULL, 10);
    }
    int64_t left = limit - usage + (cache > 0 ? cache : 0);
    return left > 0 ? left : 0;
}

/* Our cgroup's folder, as seen here; inside a container the mount point is the root of what we may see. */
static void cgroup_folder(char *buf, size_t size)
{
    char text[1024], path[PATH_MAX];
    snprintf(buf, size, "/sys/fs/cgroup");
    if (!dlab_probe_read("/proc/self/cgroup", text, sizeof text)) return;
    const char *at = strstr(text, "0::/");
    if (!at) return;
    snprintf(path, sizeof path, "/sys/fs/cgroup%.*s", (int)strcspn(at + 3, "\n"), at + 3);
    if (access(path, R_OK) == 0) snprintf(buf, size, "%.*s", (int)size - 1, path);
}

int64_t dlab_probe_memory_available_bytes(void)
{
    char text[4096], folder[PATH_MAX];
    int64_t least = dlab_probe_read("/proc/meminfo", text, sizeof text) ? kib_field(text, "MemAvailable") : -1;
    cgroup_folder(folder, sizeof folder);
    int64_t rooms[2] = {cgroup_room(folder, "memory.max", "memory.current"),
                        cgroup_room("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")};
    for (int i = 0; i < 2; i++) {
        if (rooms[i] >= 0 && (least < 0 || rooms[i] < least)) least = rooms[i];
    }
    return least;
}
