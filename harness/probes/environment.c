/* The machine and the program, from uname, /proc, /sys and the build. What cannot be read is left out. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cores.h"
#include "dlab_version.h"
#include "engine/engine.h"
#include "harness/probes/probes.h"
#include "harness/probes/read.h"

/* Sets key unless the value is empty; control characters become blanks, so that a value is always one line. */
static dlab_status set(dlab_settings *out, const char *key, const char *value, dlab_error *err)
{
    char text[1024];
    size_t n = 0;
    for (const char *c = value; *c && n + 1 < sizeof text; c++) text[n++] = iscntrl((unsigned char)*c) ? ' ' : *c;
    while (n > 0 && text[n - 1] == ' ') n--;
    text[n] = 0;
    return n > 0 ? dlab_settings_set(out, key, text, err) : DLAB_OK;
}

static dlab_status set_number(dlab_settings *out, const char *key, long long value, dlab_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    return value >= 0 ? dlab_settings_set(out, key, text, err) : DLAB_OK;
}

static dlab_status set_file(dlab_settings *out, const char *key, const char *path, dlab_error *err)
{
    char text[256];
    return dlab_probe_read(path, text, sizeof text) ? set(out, key, text, err) : DLAB_OK;
}

static dlab_status program(dlab_settings *out, dlab_error *err)
{
    DLAB_TRY(set(out, "dlab_version", DLAB_VERSION, err));
    DLAB_TRY(set(out, "git_revision", DLAB_GIT_REVISION, err));
    DLAB_TRY(set(out, "git_dirty", DLAB_GIT_DIRTY ? "true" : "false", err));
    DLAB_TRY(set(out, "compiler", DLAB_COMPILER, err));
    DLAB_TRY(set(out, "build_type", DLAB_BUILD_TYPE, err));
    return set(out, "flags", DLAB_FLAGS, err);
}

/* PRETTY_NAME="Debian GNU/Linux 12 (bookworm)" */
static dlab_status system_name(dlab_settings *out, dlab_error *err)
{
    char text[4096];
    if (!dlab_probe_read("/etc/os-release", text, sizeof text)) return DLAB_OK;
    char *at = strstr(text, "PRETTY_NAME=");
    if (!at) return DLAB_OK;
    at += strlen("PRETTY_NAME=");
    at[strcspn(at, "\n")] = 0;
    size_t n = strlen(at);
    if (n >= 2 && at[0] == '"' && at[n - 1] == '"') {
        at[n - 1] = 0;
        at++;
    }
    return set(out, "os", at, err);
}

static dlab_status host(dlab_settings *out, dlab_error *err)
{
    struct utsname u;
    if (uname(&u) == 0) {
        char kernel[sizeof u.sysname + sizeof u.release + sizeof u.machine + 3];
        snprintf(kernel, sizeof kernel, "%s %s %s", u.sysname, u.release, u.machine);
        DLAB_TRY(set(out, "host", u.nodename, err));
        DLAB_TRY(system_name(out, err));
        DLAB_TRY(set(out, "kernel", kernel, err));
    }
    return DLAB_OK;
}

/* The kernel sets the CPU flag "hypervisor" in a guest; the file says which one when it can. */
static dlab_status hypervisor(dlab_settings *out, const char *cpuinfo, dlab_error *err)
{
    char flags[8192], name[128];
    if (!dlab_probe_field(cpuinfo, "flags", flags, sizeof flags) || !strstr(flags, " hypervisor ")) return DLAB_OK;
    if (dlab_probe_read("/sys/hypervisor/type", name, sizeof name)) return set(out, "hypervisor", name, err);
    if (dlab_probe_read("/sys/class/dmi/id/sys_vendor", name, sizeof name)) return set(out, "hypervisor", name, err);
    return set(out, "hypervisor", "yes", err);
}

static dlab_status cpu(dlab_settings *out, dlab_error *err)
{
    char text[16384], value[256], supported[128] = "";
    if (dlab_probe_read("/proc/cpuinfo", text, sizeof text)) {
        if (dlab_probe_field(text, "model name", value, sizeof value)) DLAB_TRY(set(out, "cpu_model", value, err));
        if (dlab_probe_field(text, "microcode", value, sizeof value)) DLAB_TRY(set(out, "microcode", value, err));
        if (dlab_probe_field(text, "cache size", value, sizeof value)) DLAB_TRY(set(out, "cache", value, err));
        DLAB_TRY(hypervisor(out, text, err));
    }
    DLAB_TRY(set_number(out, "cores", sysconf(_SC_NPROCESSORS_ONLN), err));
    double quota = dlab_cpu_quota();
    snprintf(value, sizeof value, "%.4g", quota);
    if (quota > 0) DLAB_TRY(set(out, "cpu_quota", value, err));
    const char *const *isas = dlab_engine_isas();
    for (size_t i = 0; isas[i]; i++) {
        if (!dlab_engine_isa_supported(isas[i])) continue;
        size_t n = strlen(supported);
        snprintf(supported + n, sizeof supported - n, "%s%s", n ? " " : "", isas[i]);
    }
    DLAB_TRY(set(out, "isa", dlab_engine_isa_best(), err));
    DLAB_TRY(set(out, "isa_supported", supported, err));
    DLAB_TRY(set_file(out, "governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", err));
    return set_file(out, "turbo_off", "/sys/devices/system/cpu/intel_pstate/no_turbo", err);
}

dlab_status dlab_probe_environment(dlab_settings *out, dlab_error *err)
{
    char load[128];
    DLAB_TRY(program(out, err));
    DLAB_TRY(host(out, err));
    DLAB_TRY(cpu(out, err));
    DLAB_TRY(set_number(out, "memory_bytes", dlab_probe_memory_total_bytes(), err));
    DLAB_TRY(set_number(out, "memory_available_bytes", dlab_probe_memory_available_bytes(), err));
    DLAB_TRY(set_file(out, "transparent_hugepages", "/sys/kernel/mm/transparent_hugepage/enabled", err));
    if (dlab_probe_read("/proc/loadavg", load, sizeof load)) {
        load[strcspn(load, " ")] = 0; /* the last minute's */
        DLAB_TRY(set(out, "load", load, err));
    }
    return DLAB_OK;
}
