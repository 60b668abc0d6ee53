/* What a device can do at most, each alone: read memory, multiply and add in f32, multiply int8 or bf16 and add. */
#ifndef DLAB_KERNELS_PEAK_H
#define DLAB_KERNELS_PEAK_H

#include <stddef.h>

typedef enum { DLAB_PEAK_READ, DLAB_PEAK_F32, DLAB_PEAK_INT8, DLAB_PEAK_BF16 } dlab_peak_kind;

typedef struct {
    dlab_peak_kind kind;
    /* READ: the working set of all threads together, of which each reads its own part again and again. Its parts are whole
     * KiB: what a thread's part is more than that is left out, and less becomes 1 KiB. */
    size_t bytes;
    double seconds; /* tries go on for about so long; there is at least one */
} dlab_peak;

#endif
