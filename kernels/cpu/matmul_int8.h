/* Integer products of int8 activations with weights of 4 and 8 bits, VF outputs side by side in the lanes.
 * A block of 32 inputs is multiplied exactly; then, per output and in order of the blocks,
 *   sum += float(products) · (d · scale);  and for Q4_0 and Q4_1  sum += m · scale_sum  (m = −8·d for Q4_0).
 * Q8_0's weight w is split: w + 128 = 16·high + low, both in 0 … 15, so that one inner loop serves all types and
 * w = −128 needs no care; 128·Σq is taken off again. */
#ifndef DLAB_KERNELS_CPU_MATMUL_INT8_H
#define DLAB_KERNELS_CPU_MATMUL_INT8_H

#include "kernels/cpu/dot.h"
#include "kernels/op.h"

#define Q_ROWS 4 /* rows that share the loads of a tile */

/* VF outputs, all blocks: parts of a thread's scratch. */
typedef struct {
    uint8_t *low, *high; /* [blocks][NIBBLE_TILE_BYTES]; high for Q8_0 only */
    float *d, *m;        /* [blocks][VF] */
    uint8_t *padded;     /* the last outputs' rows, filled up with zeros to VF rows */
} q_tile;

DLAB_INLINE size_t q_tile_bytes(int64_t k)
{
    const size_t row = dlab_dtype_bytes(DLAB_Q8_0, k); /* the longest of the types */
    return (size_t)(k / 32) * (2 * NIBBLE_TILE_BYTES + VF * 2 * sizeof(float)) + VF * row;
}

DLAB_INLINE q_tile q_tile_at(uint8_t *scratch, int64_t k)
{
    const size_t n_blocks = (size_t)(k / 32);
    q_tile t;
    t.low = scratch;
    t.high = t.low + n_blocks * NIBBLE_TILE_BYTES;
    t.d = (float *)(void *)(t.high + n_blocks * NIBBLE_TILE_BYTES);
    t.m = t.d + n_blocks * VF;
    t.padded = (uint8_t *)(t.m + n_blocks * VF);
    return t;
}

/* Block b of VF rows that begin `stride` bytes apart; type is a constant where this is inlined. */
DLAB_INLINE void q_fill_block(const uint8_t *row, size_t stride, size_t b, const dlab_dtype type, const q_tile *t)
{
    const size_t step = 4 * VF, block_bytes = type == DLAB_Q8_0 ? 34 : type == DLAB_Q4_0 ? 18 : 20;
    const uint8_t *p = row + b * block_bytes;
    uint8_t *low = t->low + b * NIBBLE_TILE_BYTES, *high = t->high + b * NIBBLE_TILE_BYTES;
    vi v[4];
    transpose16(p, stride, v);
    const vf d = vi_low_f16(v[0]);
    vf_store(t->d + b * VF, d);
    if (type == DLAB_Q4_0) vf_store(t->m + b * VF, vf_mul(d, vf_set1(-8)));
    if (type == DLAB_Q4_1) vf_store(t->m + b * VF, vi_high_f16(v[0]));
    if (type == DLAB_Q8_0) {
        for (size_t half = 0; half < 2; half++) {
            transpose16(p + 2 + 16 * half, stride, v);
            for (size_t i = 0; i < 4; i++) {
                const size_t at = (4 * half + i) * step;
                vi_store_nibbles(low + at, high + at, vi_flip_sign_bits(v[i]));
            }
        }
        return;
    }
    transpose16(p + (type == DLAB_Q4_0 ? 2 : 4), stride, v);
    for (size_t i = 0; i < 4; i++) vi_store_nibbles(low + i * step, low + (4 + i) * step, v[i]);
}

/* Outputs first … first + VF − 1 of w; those past the last are 0. */
static inline void q_tile_fill(const dlab_matrix *w, const uint8_t *base, int64_t first, const q_tile t)
{
    const size_t n_blocks = (size_t)(w->k / 32), stride = dlab_dtype_bytes(w->dtype, w->k);
    const uint8_t *row = base + (size_t)first * stride;
    if (w->n - first < VF) {
        const size_t rest = (size_t)(w->n - first) * stride;
        memcpy(t.padded, row, rest);
        memset(t.padded + rest, 0, VF * stride - rest);
        row = t.padded;
    }
    switch (w->dtype) {
    case DLAB_Q8_0:
        for (size_t b = 0; b < n_blocks; b++) q_fill_block(row, stride, b, DLAB_Q8_0, &t);
        break;
    case DLAB_Q4_0:
        for (size_t b = 0; b < n_blocks; b++) q_fill_block(row, stride, b, DLAB_Q4_0, &t);
        break;
    default:
        for (size_t b = 0; b < n_blocks; b++) q_fill_block(row, stride, b, DLAB_Q4_1, &t);
        break;
    }
}

/* out[r · VF + o], rows x of n_blocks blocks each; rows and type are constants where this is inlined. */
DLAB_INLINE void q_dot_block(const q_tile *t, const dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks,
                             const int rows, float *out)
{
    vf sum[Q_ROWS];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = vf_set1(0);
    for (int64_t b = 0; b < n_blocks; b++) {
        const int8_t *q[Q_ROWS];
        vi dots[Q_ROWS], high[Q_ROWS];
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) q[r] = x[r * n_blocks + b].q;
        nibble_dots(t->low + b * NIBBLE_TILE_BYTES, q, rows, dots);
        if (type == DLAB_Q8_0) nibble_dots(t->high + b * NIBBLE_TILE_BYTES, q, rows, high);
        const vf d = vf_load(t->d + b * VF);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) {
            if (type == DLAB_Q8_0) dots[r] = vi_join_nibbles(high[r], dots[r], -128 * sum32_i8(q[r]));
            const vf scale = vf_mul(d, vf_set1(x[r * n_blocks + b].scale));
            sum[r] = vf_fma(vi_to_f32(dots[r]), scale, sum[r]);
            if (type != DLAB_Q8_0)
                sum[r] = vf_fma(vf_load(t->m + b * VF), vf_set1(x[r * n_blocks + b].scale_sum), sum[r]);
        }
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) vf_store(out + r * VF, sum[r]);
}

DLAB_INLINE void q_dot_rows(const q_tile *t, const dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks,
                            int rows, float *out)
{
    switch (rows) {
    case 4:
        q_dot_block(t, type, x, n_blocks, 4, out);
        break;
    case 3:
        q_dot_block(t, type, x, n_blocks, 3, out);
        break;
    case 2:
        q_dot_block(t, type, x, n_blocks, 2, out);
        break;
    default:
        q_dot_block(t, type, x, n_blocks, 1, out);
        break;
    }
}

/* 1 ≤ rows ≤ Q_ROWS. */
static inline void q_tile_dot(const q_tile *t, dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks, int rows,
                              float *out)
{
    if (type == DLAB_Q8_0)
        q_dot_rows(t, DLAB_Q8_0, x, n_blocks, rows, out);
    else
        q_dot_rows(t, DLAB_Q4_1, x, n_blocks, rows, out);
}

#endif
