/* Integer products of int8 activations with weights of 4 and 8 bits, VF outputs side by side in the lanes.
 * A block of 32 inputs is multiplied exactly; then, per output and in order of the blocks,
 *   sum += float(products) · (d · scale);  and for Q4_0 and Q4_1  sum += m · scale_sum  (m = −8·d for Q4_0).
 * Q8_0's weight w is split: w + 128 = 16·high + low, both in 0 … 15, so that one inner loop serves all types and
 * w = −128 needs no care; 128·Σq is taken off again. */
#ifndef DLAB_KERNELS_CPU_MATMUL_INT8_H
#define DLAB_KERNELS_CPU_MATMUL_INT8_H

#include "kernels/cpu/matmul_tile.h"

/* VF outputs, all blocks: parts of a thread's scratch. */
typedef struct {
    uint8_t *low, *high; /* [blocks][NIBBLE_TILE_BYTES]; high for Q8_0 only */
    float *d, *m;        /* [blocks][VF] */
} q_tile;

DLAB_INLINE size_t q_tile_bytes(int64_t k)
{
    return (size_t)(k / 32) * (2 * NIBBLE_TILE_BYTES + VF * 2 * sizeof(float));
}

DLAB_INLINE q_tile q_tile_at(uint8_t *scratch, int64_t k)
{
    const size_t n_blocks = (size_t)(k / 32);
    q_tile t;
    t.low = scratch;
    t.high = t.low + n_blocks * NIBBLE_TILE_BYTES;
    t.d = (float *)(void *)(t.high + n_blocks * NIBBLE_TILE_BYTES);
    t.m = t.d + n_blocks * VF;
    return t;
}

/* ---- exact products of one block of VF outputs with rows x[r][0 … 31] ---- */

DLAB_INLINE void nibble_dots(const uint8_t *tile, const int8_t *const *x, const int rows, vi *out)
{
    va sum[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = va_zero();
    DLAB_UNROLL
    for (int s = 0; s < 8; s++) {
        const vi w = vi_load(tile + 4 * VF * s);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) sum[r] = va_dot(sum[r], w, x[r] + 4 * s);
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) out[r] = va_sum(sum[r]);
}

DLAB_INLINE void packed_nibble_dots(const uint8_t *p, const int8_t *const *x, const int rows, vi *out)
{
    va sum[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = va_zero();
    DLAB_UNROLL
    for (int s = 0; s < 4; s++) {
        const vi w = vi_load(p + 4 * VF * s), low = vi_low_nibbles(w), high = vi_high_nibbles(w);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) {
            sum[r] = va_dot(sum[r], low, x[r] + 4 * s);
            sum[r] = va_dot(sum[r], high, x[r] + 16 + 4 * s);
        }
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) out[r] = va_sum(sum[r]);
}

/* Bytes w + 128. Where a product of full bytes does not fit, they are split: low and high halves apart. */
#ifdef DLAB_VNNI
/* NOLINTNEXTLINE(readability-non-const-parameter): the other variant writes there */
DLAB_INLINE void vi_store_bytes(uint8_t *low, uint8_t *high, vi v)
{
    (void)high;
    vi_store(low, v);
}
DLAB_INLINE void byte_dots(const uint8_t *low, const uint8_t *high, const int8_t *const *x, const int rows, vi *out)
{
    (void)high;
    nibble_dots(low, x, rows, out);
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) out[r] = vi_add_all(out[r], -128 * sum32_i8(x[r]));
}
DLAB_INLINE void packed_byte_dots(const uint8_t *p, const int8_t *const *x, const int rows, vi *out)
{
    va sum[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = va_zero();
    DLAB_UNROLL
    for (int s = 0; s < 8; s++) {
        const vi w = vi_flip_sign_bits(vi_load(p + 4 * VF * s));
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) sum[r] = va_dot(sum[r], w, x[r] + 4 * s);
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) out[r] = vi_add_all(va_sum(sum[r]), -128 * sum32_i8(x[r]));
}
#else
DLAB_INLINE void vi_store_bytes(uint8_t *low, uint8_t *high, vi v) { vi_store_nibbles(low, high, v); }
DLAB_INLINE void byte_dots(const uint8_t *low, const uint8_t *high, const int8_t *const *x, const int rows, vi *out)
{
    vi upper[ROWS_TOGETHER];
    nibble_dots(low, x, rows, out);
    nibble_dots(high, x, rows, upper);
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) out[r] = vi_join_nibbles(upper[r], out[r], -128 * sum32_i8(x[r]));
}
DLAB_INLINE void packed_byte_dots(const uint8_t *p, const int8_t *const *x, const int rows, vi *out)
{
    va lower[ROWS_TOGETHER], upper[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) lower[r] = upper[r] = va_zero();
    DLAB_UNROLL
    for (int s = 0; s < 8; s++) {
        const vi w = vi_flip_sign_bits(vi_load(p + 4 * VF * s)), low = vi_low_nibbles(w), high = vi_high_nibbles(w);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) {
            lower[r] = va_dot(lower[r], low, x[r] + 4 * s);
            upper[r] = va_dot(upper[r], high, x[r] + 4 * s);
        }
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) out[r] = vi_join_nibbles(va_sum(upper[r]), va_sum(lower[r]), -128 * sum32_i8(x[r]));
}
#endif

/* Block b of a packed tile, widened. */
DLAB_INLINE void q_widen_block(const uint8_t *p, size_t b, const dlab_dtype type, const q_tile *t)
{
    const size_t step = 4 * VF;
    uint8_t *low = t->low + b * NIBBLE_TILE_BYTES, *high = t->high + b * NIBBLE_TILE_BYTES;
    const tile_block from = tile_block_at(p, type);
    p = from.quants;
    vf_store(t->d + b * VF, from.d);
    if (type != DLAB_Q8_0) vf_store(t->m + b * VF, from.m);
    if (type == DLAB_Q8_0) {
        for (size_t i = 0; i < 8; i++)
            vi_store_bytes(low + i * step, high + i * step, vi_flip_sign_bits(vi_load(p + i * step)));
        return;
    }
    for (size_t i = 0; i < 4; i++) vi_store_nibbles(low + i * step, low + (4 + i) * step, vi_load(p + i * step));
}

static inline void q_tile_widen(const dlab_matrix *w, const uint8_t *p, const q_tile t)
{
    const size_t n_blocks = (size_t)(w->k / 32), bytes = dlab_pack_block_bytes(w->dtype, VF);
    switch (w->dtype) {
    case DLAB_Q8_0:
        for (size_t b = 0; b < n_blocks; b++) q_widen_block(p + b * bytes, b, DLAB_Q8_0, &t);
        break;
    case DLAB_Q4_0:
        for (size_t b = 0; b < n_blocks; b++) q_widen_block(p + b * bytes, b, DLAB_Q4_0, &t);
        break;
    default:
        for (size_t b = 0; b < n_blocks; b++) q_widen_block(p + b * bytes, b, DLAB_Q4_1, &t);
        break;
    }
}

/* float(products) and what belongs to them, added to a row's sums. */
DLAB_INLINE vf q_add(vf sum, vi dots, vf d, vf m, const dlab_qact_block *x, const dlab_dtype type)
{
    sum = vf_fma(vi_to_f32(dots), vf_mul(d, vf_set1(x->scale)), sum);
    return type == DLAB_Q8_0 ? sum : vf_fma(m, vf_set1(x->scale_sum), sum);
}

/* Rows x of n_blocks blocks each; rows and type are constants where this is inlined. */
DLAB_INLINE void q_dot_block(const q_tile *t, const dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks,
                             const int rows, const tile_out *out)
{
    vf sum[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = vf_set1(0);
    for (int64_t b = 0; b < n_blocks; b++) {
        const int8_t *q[ROWS_TOGETHER];
        vi dots[ROWS_TOGETHER];
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) q[r] = x[r * n_blocks + b].q;
        if (type == DLAB_Q8_0)
            byte_dots(t->low + b * NIBBLE_TILE_BYTES, t->high + b * NIBBLE_TILE_BYTES, q, rows, dots);
        else
            nibble_dots(t->low + b * NIBBLE_TILE_BYTES, q, rows, dots);
        const vf d = vf_load(t->d + b * VF), m = type == DLAB_Q8_0 ? d : vf_load(t->m + b * VF);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) {
            sum[r] = q_add(sum[r], dots[r], d, m, &x[r * n_blocks + b], type);
        }
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) tile_put(out, r, sum[r]);
}

/* The same straight from packed weights, which are read once and in order. */
DLAB_INLINE void q_stream_block(const uint8_t *p, const dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks,
                                const int rows, const tile_out *out)
{
    const int64_t bytes = (int64_t)dlab_pack_block_bytes(type, VF);
    vf sum[ROWS_TOGETHER];
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = vf_set1(0);
    for (int64_t b = 0; b < n_blocks; b++, p += bytes) {
        const int8_t *q[ROWS_TOGETHER];
        vi dots[ROWS_TOGETHER];
        const tile_block block = tile_block_at(p, type);
        tile_fetch(p, bytes);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) q[r] = x[r * n_blocks + b].q;
        if (type == DLAB_Q8_0)
            packed_byte_dots(block.quants, q, rows, dots);
        else
            packed_nibble_dots(block.quants, q, rows, dots);
        DLAB_UNROLL
        for (int r = 0; r < rows; r++) sum[r] = q_add(sum[r], dots[r], block.d, block.m, &x[r * n_blocks + b], type);
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) tile_put(out, r, sum[r]);
}

/* 1 ≤ rows ≤ ROWS_TOGETHER. */
static inline void q_tile_dot(const q_tile *t, dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks, int rows,
                              const tile_out *out)
{
    if (type == DLAB_Q8_0)
        WITH_ROWS(rows, q_dot_block(t, DLAB_Q8_0, x, n_blocks, n, out));
    else
        WITH_ROWS(rows, q_dot_block(t, DLAB_Q4_1, x, n_blocks, n, out));
}

/* The same of a packed tile p as it is. */
/* NOLINTNEXTLINE(readability-function-size): WITH_ROWS spells out its cases */
static inline void q_tile_stream(const uint8_t *p, dlab_dtype type, const dlab_qact_block *x, int64_t n_blocks,
                                 int rows, const tile_out *out)
{
    switch (type) {
    case DLAB_Q8_0:
        WITH_ROWS(rows, q_stream_block(p, DLAB_Q8_0, x, n_blocks, n, out));
        break;
    case DLAB_Q4_0:
        WITH_ROWS(rows, q_stream_block(p, DLAB_Q4_0, x, n_blocks, n, out));
        break;
    default:
        WITH_ROWS(rows, q_stream_block(p, DLAB_Q4_1, x, n_blocks, n, out));
        break;
    }
}

#endif
