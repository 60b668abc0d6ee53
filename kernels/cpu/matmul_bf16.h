/* Products of bf16 rows with a packed tile of BF16 weights, two inputs of VF outputs at a time. Each row has two sums an output,
 * of its even and of its odd pairs, in order, added at the end, whatever rows go along. */
#ifndef DLAB_KERNELS_CPU_MATMUL_BF16_H
#define DLAB_KERNELS_CPU_MATMUL_BF16_H

#include "kernels/cpu/matmul_tile.h"

#ifdef DLAB_BF16_PAIRS
#define PAIR_BYTES (4 * VF) /* of a tile */

DLAB_INLINE void bf16_rows(const uint8_t *p, int64_t k, const uint16_t *x, const int rows, const tile_out *out)
{
    const int64_t stride = dlab_bf16_row(k);
    vf sum[ROWS_TOGETHER][2];
    int64_t i = 0;
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = vf_set1(0);
    for (; i + 4 <= stride; i += 4, p += 2 * PAIR_BYTES) {
        __builtin_prefetch(p + FETCH_AHEAD);
        __builtin_prefetch(p + FETCH_AHEAD + PAIR_BYTES);
        const vi even = vi_load(p), odd = vi_load(p + PAIR_BYTES);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) {
            sum[r][0] = vf_dot_bf16(sum[r][0], even, x + r * stride + i);
            sum[r][1] = vf_dot_bf16(sum[r][1], odd, x + r * stride + i + 2);
        }
    }
    if (i < stride) {
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) sum[r][0] = vf_dot_bf16(sum[r][0], vi_load(p), x + r * stride + i);
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) tile_put(out, r, vf_add(sum[r][0], sum[r][1]));
}

/* 1 ≤ rows ≤ ROWS_TOGETHER rows of dlab_bf16_row(k). */
static inline void bf16_tile_dot(const uint8_t *p, int64_t k, const uint16_t *x, int rows, const tile_out *out)
{
    WITH_ROWS(rows, bf16_rows(p, k, x, n, out));
}
#endif

#endif
