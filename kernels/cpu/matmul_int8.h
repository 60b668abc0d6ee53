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
    uint16_t *d16, *m16; /* the same before conversion */
} q_tile;

DLAB_INLINE size_t q_tile_bytes(int64_t k)
{
    const size_t n_blocks = (size_t)(k / 32);
    return n_blocks * (2 * NIBBLE_TILE_BYTES + VF * (2 * sizeof(float) + 2 * sizeof(uint16_t)));
}

DLAB_INLINE q_tile q_tile_at(uint8_t *scratch, int64_t k)
{
    const size_t n_blocks = (size_t)(k / 32), n = n_blocks * VF;
    q_tile t;
    t.low = scratch;
    t.high = t.low + n_blocks * NIBBLE_TILE_BYTES;
    t.d = (float *)(void *)(t.high + n_blocks * NIBBLE_TILE_BYTES);
    t.m = t.d + n;
    t.d16 = (uint16_t *)(void *)(t.m + n);
    t.m16 = t.d16 + n;
    return t;
}

static inline void q_fill_scales(const uint8_t *const *row, dlab_dtype type, int64_t n_blocks, const q_tile *t)
{
    const int64_t block_bytes = type == DLAB_Q8_0 ? 34 : type == DLAB_Q4_0 ? 18 : 20;
    for (int64_t o = 0; o < VF; o++) {
        const uint8_t *p = row[o];
        for (int64_t b = 0; b < n_blocks; b++, p += block_bytes) {
            memcpy(t->d16 + b * VF + o, p, 2);
            if (type == DLAB_Q4_1) memcpy(t->m16 + b * VF + o, p + 2, 2);
        }
    }
    for (int64_t i = 0; i < n_blocks * VF; i += VF) {
        const vf d = vf_load_f16(t->d16 + i);
        vf_store(t->d + i, d);
        if (type == DLAB_Q4_0) vf_store(t->m + i, vf_mul(d, vf_set1(-8)));
        if (type == DLAB_Q4_1) vf_store(t->m + i, vf_load_f16(t->m16 + i));
    }
}

/* Outputs first … first + VF − 1 of w; past the last output, the last again. */
static inline void q_tile_fill(const dlab_matrix *w, const uint8_t *base, int64_t first, const q_tile t)
{
    const int64_t n_blocks = w->k / 32;
    const size_t row_bytes = dlab_dtype_bytes(w->dtype, w->k), block_bytes = row_bytes / (size_t)n_blocks;
    const uint8_t *row[VF];
    for (int64_t o = 0; o < VF; o++)
        row[o] = base + (size_t)(first + o < w->n ? first + o : w->n - 1) * row_bytes;
    q_fill_scales(row, w->dtype, n_blocks, &t);
    const size_t skip = w->dtype == DLAB_Q4_1 ? 4 : 2, step = 4 * VF;
    for (size_t b = 0; b < (size_t)n_blocks; b++) {
        uint8_t *low = t.low + b * NIBBLE_TILE_BYTES, *high = t.high + b * NIBBLE_TILE_BYTES;
        vi v[4];
        transpose16(row, b * block_bytes + skip, v);
        if (w->dtype != DLAB_Q8_0) {
            for (size_t i = 0; i < 4; i++) vi_store_nibbles(low + i * step, low + (4 + i) * step, v[i]);
            continue;
        }
        for (size_t i = 0; i < 4; i++) vi_store_nibbles(low + i * step, high + i * step, vi_flip_sign_bits(v[i]));
        transpose16(row, b * block_bytes + skip + 16, v);
        for (size_t i = 0; i < 4; i++)
            vi_store_nibbles(low + (4 + i) * step, high + (4 + i) * step, vi_flip_sign_bits(v[i]));
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
    case 4: q_dot_block(t, type, x, n_blocks, 4, out); break;
    case 3: q_dot_block(t, type, x, n_blocks, 3, out); break;
    case 2: q_dot_block(t, type, x, n_blocks, 2, out); break;
    default: q_dot_block(t, type, x, n_blocks, 1, out); break;
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
