/* Weights as the CPU's products like them: tiles of L outputs (L: the f32 lanes of the instruction set), so that a product
 * reads one stream from its begin to its end. Block by block of 32 inputs, of Q4_0, Q4_1 and Q8_0:
 *   L f16 scales d; Q4_1: L f16 minima m; then the quants of the L outputs, four bytes of each output at a time:
 *   Q4_0, Q4_1: 4 · [L][4] bytes: byte j of group s has input 4s + j low and 16 + 4s + j high
 *   Q8_0:       8 · [L][4] bytes: byte j of group s is input 4s + j
 * Input by input of F32 and F16: [L] values. Of BF16 two inputs at a time: [L][2] values, a zero past an odd last.
 * Outputs past the last are zeros. As many bytes as the file's, but for that filling. */
#ifndef DLAB_KERNELS_CPU_CPU_PACK_H
#define DLAB_KERNELS_CPU_CPU_PACK_H

#include "kernels/cpu/cpu.h"

/* The layout's name in dlab_matrix.layout is its lanes: 4, 8 or 16. Of types in blocks. */
static inline size_t dlab_pack_block_bytes(dlab_dtype t, int64_t lanes)
{
    return (size_t)lanes * (size_t)dlab_dtype_block_bytes(t);
}

static inline size_t dlab_pack_tile_bytes(dlab_dtype t, int64_t k, int64_t lanes)
{
    const int64_t together = t == DLAB_BF16 ? 2 : 1, block = dlab_dtype_block(t);
    return (size_t)(dlab_ceil_div(k / block, together) * together) * dlab_pack_block_bytes(t, lanes);
}

static inline size_t dlab_pack_bytes(const dlab_matrix *m, int64_t lanes)
{
    return (size_t)dlab_ceil_div(m->n, lanes) * dlab_pack_tile_bytes(m->dtype, m->k, lanes);
}

static inline dlab_matrix dlab_packed_matrix(const dlab_matrix *m, dlab_at to, int32_t lanes)
{
    dlab_matrix out = *m;
    out.at = to;
    out.layout = lanes;
    out.packed_bytes = dlab_pack_bytes(m, lanes);
    return out;
}

/* Bytes from the begin of a tile to element (k, output) of a type that has no blocks. */
static inline size_t dlab_pack_offset(dlab_dtype t, int64_t k, int64_t output, int64_t lanes)
{
    const size_t size = dlab_dtype_bytes(t, 1);
    if (t == DLAB_BF16) return size * (size_t)((k / 2 * lanes + output) * 2 + k % 2);
    return size * (size_t)(k * lanes + output);
}

/* One row of a packed matrix, put together at `to` as the file has it. */
const void *dlab_pack_row(const dlab_matrix *m, int64_t row, uint8_t *to);

typedef struct {
    dlab_matrix from, to;
} dlab_pack_args;

/* A task is a tile. */
extern const dlab_cpu_kernel dlab_cpu_pack_kernel;

#endif
