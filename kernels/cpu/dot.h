/* Products of f32 rows with rows of any wide type, several by several, so that loads are shared. Each pair is summed in
 * VF lanes along k, then over the lanes: the same whatever the neighbours. */
#ifndef DLAB_KERNELS_CPU_DOT_H
#define DLAB_KERNELS_CPU_DOT_H

#include "kernels/cpu/simd.h"

/* out[r · 4 + c] = x[r] · w[c]; rows and t are constants where this is inlined. */
DLAB_INLINE void dot_block(const float *const *x, const void *const *w, int64_t k, const int rows, const dlab_dtype t,
                           float *out)
{
    vf sum[DOT_ROWS][4];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++) sum[r][c] = vf_set1(0);
    int64_t i = 0;
    for (; i + VF <= k; i += VF) {
        vf v[DOT_ROWS];
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) v[r] = vf_load(x[r] + i);
        DLAB_UNROLL
        for (int c = 0; c < 4; c++) {
            vf u = vf_load_as(w[c], i, t);
            DLAB_UNROLL
            for (int r = 0; r < rows; r++) sum[r][c] = vf_fma(v[r], u, sum[r][c]);
        }
    }
    if (i < k) {
        DLAB_UNROLL
        for (int c = 0; c < 4; c++) {
            vf u = vf_load_n_as(w[c], i, k - i, t);
            DLAB_UNROLL
            for (int r = 0; r < rows; r++) sum[r][c] = vf_fma(vf_load_n(x[r] + i, k - i), u, sum[r][c]);
        }
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) vf_sum4(sum[r][0], sum[r][1], sum[r][2], sum[r][3], out + 4 * r);
}

/* 1 ≤ rows ≤ DOT_ROWS, at run time. */
DLAB_INLINE void dot_rows(const float *const *x, const void *const *w, int64_t k, int rows, const dlab_dtype t,
                          float *out)
{
    switch (rows) {
#if DOT_ROWS >= 4
    case 4:
        dot_block(x, w, k, 4, t, out);
        break;
#endif
#if DOT_ROWS >= 3
    case 3:
        dot_block(x, w, k, 3, t, out);
        break;
#endif
    case 2:
        dot_block(x, w, k, 2, t, out);
        break;
    default:
        dot_block(x, w, k, 1, t, out);
        break;
    }
}

#endif
