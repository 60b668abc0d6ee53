/* The CPU device's kernels. An op is a number of phases; a phase is a number of independent tasks, which threads take
 * in any order; between phases all threads meet. A task's result never depends on who computes it or on what else runs.
 * Each file kernels/cpu/OP.c is compiled for each instruction set that does more for it than another; files cpu_*.c once,
 * without special instructions. */
#ifndef DLAB_KERNELS_CPU_CPU_H
#define DLAB_KERNELS_CPU_CPU_H

#include "base/int.h"
#include "kernels/device.h"
#include "kernels/host_mem.h"

#define DLAB_CPU_MAX_PHASES 2

typedef struct {
    const char *name; /* the op's */
    int n_phases;     /* 1 … DLAB_CPU_MAX_PHASES */
    int64_t (*tasks)(const void *args, int phase);
    /* Tasks begin … end − 1. scratch: this thread's own, of scratch_bytes(args), 64-byte aligned, of any content. */
    void (*run)(const void *args, int phase, int64_t begin, int64_t end, void *scratch);
    size_t (*scratch_bytes)(const void *args); /* NULL: none */
    /* One phase, and of operands that are [rows, …] task r touches row r only. Then the same rows of the next such op may
     * follow at once, without a meeting. */
    bool by_row;
} dlab_cpu_kernel;

/* Parallel to dlab_isa_list: for each instruction set a table of DLAB_OP_N kernels. */
extern const dlab_cpu_kernel *const *const dlab_cpu_tables[];
extern const dlab_device_ops dlab_device_cpu;

/* f32 lanes of a vector: outputs of a tile of packed weights. */
int32_t dlab_isa_lanes(const char *isa);

/* const dlab_cpu_kernel DLAB_CPU_KERNEL(matmul) = {…}; */
#define DLAB_CPU_KERNEL_NAME(op, isa) dlab_cpu_##op##_##isa
#define DLAB_CPU_KERNEL_FOR(op, isa)  DLAB_CPU_KERNEL_NAME(op, isa)
#define DLAB_CPU_KERNEL(op)           DLAB_CPU_KERNEL_FOR(op, DLAB_ISA)

#endif
