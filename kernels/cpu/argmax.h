/* The largest of a row of logits. */
#ifndef DLAB_KERNELS_CPU_ARGMAX_H
#define DLAB_KERNELS_CPU_ARGMAX_H

#include "kernels/cpu/simd.h"

/* Of n ≥ 1 values, ignoring NaN where another is larger. */
static inline float row_max(const float *x, int64_t n)
{
    int64_t i = 0;
    vf m = vf_set1(x[0]);
    for (; i + VF <= n; i += VF) m = vf_max(m, vf_load(x + i));
    float most = vf_max_lane(m);
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* Its id, the lowest on a tie; −1 if any value is NaN. */
static inline int32_t row_argmax(const float *x, int32_t n)
{
    int broken = 0;
    for (int32_t i = 0; i < n; i++) broken |= x[i] != x[i];
    if (broken) return -1;
    const float most = row_max(x, n);
    int32_t id = 0;
    while (x[id] != most) id++;
    return id;
}

#endif
