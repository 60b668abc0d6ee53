/* Products of f32 rows with a packed tile of weights of any type, VF outputs side by side in the lanes. Weights become f32
 * first; then each row has two sums an output, of its even and of its odd inputs, in order, added at the end. So the result
 * is the same whether a tile is widened before or as it is read, and whatever rows go along. */
#ifndef DLAB_KERNELS_CPU_MATMUL_FLOAT_H
#define DLAB_KERNELS_CPU_MATMUL_FLOAT_H

#include "kernels/cpu/matmul_tile.h"

/* What is done with two inputs' weights: multiplied by the rows, or stored as f32 [k][VF]. */
typedef struct {
    const float *const *x; /* [rows] */
    vf (*sum)[2];          /* [rows] */
    float *wide;
} float_sink;

DLAB_INLINE void float_pair(const float_sink *s, int64_t i, vf even, vf odd, const int rows)
{
    if (rows == 0) {
        vf_store(s->wide + i * VF, even);
        vf_store(s->wide + (i + 1) * VF, odd);
        return;
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) {
        s->sum[r][0] = vf_fma(vf_set1(s->x[r][i]), even, s->sum[r][0]);
        s->sum[r][1] = vf_fma(vf_set1(s->x[r][i + 1]), odd, s->sum[r][1]);
    }
}

/* A block of 32 inputs from the i-th on. */
DLAB_INLINE void float_block(const uint8_t *p, const dlab_dtype type, int64_t i, const float_sink *s, const int rows)
{
    const tile_block b = tile_block_at(p, type);
    if (type == DLAB_Q8_0) {
        DLAB_UNROLL
        for (int g = 0; g < 8; g++) {
            const vi q = vi_load(b.quants + 4 * VF * g);
            DLAB_UNROLL
            for (int j = 0; j < 4; j += 2)
                float_pair(s, i + 4 * g + j, vf_mul(vi_byte(q, 8 * j), b.d), vf_mul(vi_byte(q, 8 * j + 8), b.d), rows);
        }
        return;
    }
    DLAB_UNROLL
    for (int half = 0; half < 8; half += 4) {
        DLAB_UNROLL
        for (int g = 0; g < 4; g++) {
            const vi q = vi_load(b.quants + 4 * VF * g);
            DLAB_UNROLL
            for (int j = 0; j < 4; j += 2)
                float_pair(s, i + 4 * half + 4 * g + j, vf_fma(vi_nibble(q, 8 * j + half), b.d, b.m),
                           vf_fma(vi_nibble(q, 8 * j + 8 + half), b.d, b.m), rows);
        }
    }
}

/* All k inputs. */
DLAB_INLINE void float_walk(const uint8_t *p, const dlab_dtype type, int64_t k, const float_sink *s, const int rows)
{
    if (type == DLAB_Q4_0 || type == DLAB_Q4_1 || type == DLAB_Q8_0) {
        const int64_t bytes = (int64_t)dlab_pack_block_bytes(type, VF);
        for (int64_t i = 0; i < k; i += 32, p += bytes) {
            tile_fetch(p, bytes);
            float_block(p, type, i, s, rows);
        }
        return;
    }
    const int64_t bytes = type == DLAB_F32 ? 4 * VF : 2 * VF; /* of one input */
    for (int64_t i = 0; i + 1 < k; i += 2, p += 2 * bytes) {
        __builtin_prefetch(p + FETCH_AHEAD);
        if (type == DLAB_BF16) {
            const vi both = vi_load(p);
            float_pair(s, i, vi_low_bf16(both), vi_high_bf16(both), rows);
        } else {
            float_pair(s, i, vf_load_as(p, 0, type), vf_load_as(p + bytes, 0, type), rows);
        }
    }
    if (k % 2 == 0) return;
    const vf last = type == DLAB_BF16 ? vi_low_bf16(vi_load(p)) : vf_load_as(p, 0, type);
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) s->sum[r][0] = vf_fma(vf_set1(s->x[r][k - 1]), last, s->sum[r][0]);
    if (rows == 0) vf_store(s->wide + (k - 1) * VF, last);
}

DLAB_INLINE void float_rows(const uint8_t *p, const dlab_dtype type, int64_t k, const float *x, const int rows,
                            const tile_out *out)
{
    vf sum[ROWS_TOGETHER][2];
    const float *row[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) {
        row[r] = x + r * k;
        sum[r][0] = sum[r][1] = vf_set1(0);
    }
    const float_sink s = {.x = row, .sum = sum};
    float_walk(p, type, k, &s, rows);
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) tile_put(out, r, vf_add(sum[r][0], sum[r][1]));
}

#define FLOAT_TYPES(CASE) CASE(F32) CASE(F16) CASE(BF16) CASE(Q8_0) CASE(Q4_0) CASE(Q4_1)

/* 1 ≤ rows ≤ ROWS_TOGETHER rows x[r · k + i]. */
/* NOLINTNEXTLINE(readability-function-size): WITH_ROWS spells out its cases */
static inline void float_tile_dot(const uint8_t *p, dlab_dtype type, int64_t k, const float *x, int rows,
                                  const tile_out *out)
{
    switch (type) {
#define CASE(t)                                                                                                        \
    case DLAB_##t:                                                                                                     \
        WITH_ROWS(rows, float_rows(p, DLAB_##t, k, x, n, out));                                                        \
        break;
        FLOAT_TYPES(CASE)
#undef CASE
    default:
        break;
    }
}

/* The tile as one of f32. */
/* NOLINTNEXTLINE(readability-non-const-parameter): written through the sink */
static inline void float_tile_widen(const uint8_t *p, dlab_dtype type, int64_t k, float *wide)
{
    const float_sink s = {.wide = wide};
    switch (type) {
#define CASE(t)                                                                                                        \
    case DLAB_##t:                                                                                                     \
        float_walk(p, DLAB_##t, k, &s, 0);                                                                             \
        break;
        FLOAT_TYPES(CASE)
#undef CASE
    default:
        break;
    }
}

#endif
