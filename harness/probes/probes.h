/* What the machine and the process look like. Missing facts are absent, not guessed. */
#ifndef DLAB_HARNESS_PROBES_PROBES_H
#define DLAB_HARNESS_PROBES_PROBES_H

#include "results/run.h"

/* dlab_version, git_revision, git_dirty, compiler, flags, host, os, kernel, cpu_model, cores, isa, isa_supported,
 * memory_bytes, governor, load, cpu_quota, hypervisor, … into *out. */
dlab_status dlab_probe_environment(dlab_settings *out, dlab_error *err);
int64_t dlab_probe_rss_bytes(void);      /* now; −1 if unknown */
int64_t dlab_probe_rss_peak_bytes(void); /* since the last reset; −1 if unknown */
bool dlab_probe_rss_reset(void);         /* the peak starts again from now; false: the kernel does not allow it */
int64_t dlab_probe_memory_available_bytes(void); /* what the machine, or our cgroup, can still give; −1 if unknown */

#endif
