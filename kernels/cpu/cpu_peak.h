/* Probes of what the CPU can do at most. peak.c is compiled once for each instruction set, cpu_peak.c has the team run it. */
#ifndef DLAB_KERNELS_CPU_CPU_PEAK_H
#define DLAB_KERNELS_CPU_CPU_PEAK_H

#include "base/team.h"
#include "kernels/cpu/cpu.h"

/* One thread's part; they return the bytes read, or the operations done (two a multiply-add). What comes out of the sums
 * goes to *sink, so that nothing can be left out. */
typedef struct {
    /* `bytes` at memory from the first to the last, `rounds` times, with or without prefetches. */
    double (*read)(const void *memory, size_t bytes, int64_t rounds, bool ahead, float *sink);
    double (*f32)(int64_t rounds, float *sink);
    double (*int8)(int64_t rounds, float *sink);
    double (*bf16)(int64_t rounds, float *sink); /* f32, where bf16 is widened */
} dlab_cpu_peaks;

/* Parallel to dlab_isa_list. */
extern const dlab_cpu_peaks *const dlab_cpu_peak_table[];

/* What a thread did in a try, and when. Threads have cache lines of their own. */
typedef struct {
    _Alignas(64) double work; /* bytes or operations */
    int64_t begin_ns, end_ns;
    float sink;
} dlab_cpu_peak_part;

/* A try takes from the begin of the thread that is first to the end of the one that is last, at least 1 ns: whatever
 * keeps a thread from running, all the work was done within that time. */
int64_t dlab_cpu_peak_took(const dlab_cpu_peak_part *parts, int n_threads);

/* dlab_device_ops.peak of a device with this team and these pools. */
dlab_status dlab_cpu_peak_run(dlab_team *team, const char *isa, dlab_mem *mem, const dlab_peak *what,
                              double *per_second, dlab_error *err);

#endif
