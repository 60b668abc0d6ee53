/* Quantized weights as the CPU's integer products like them: tiles of L outputs (L: the f32 lanes of the instruction set), block
 * by block of 32 inputs, so that a product reads one stream from its begin to its end:
 *   L f16 scales d; Q4_1: L f16 minima m; then the quants of the L outputs, four bytes of each output at a time:
 *   Q4_0, Q4_1: 4 · [L][4] bytes: byte j of group s has input 4s + j low and 16 + 4s + j high
 *   Q8_0:       8 · [L][4] bytes: byte j of group s is input 4s + j
 * Outputs past the last are zeros. As many bytes as the file's, but for that filling. */
#ifndef DLAB_KERNELS_CPU_CPU_PACK_H
#define DLAB_KERNELS_CPU_CPU_PACK_H

#include "kernels/cpu/cpu.h"

/* The layout's name in dlab_matrix.layout is its lanes: 4, 8 or 16. */
static inline size_t dlab_pack_block_bytes(dlab_dtype t, int64_t lanes)
{
    return (size_t)lanes * (size_t)dlab_dtype_block_bytes(t);
}

static inline size_t dlab_pack_tile_bytes(dlab_dtype t, int64_t k, int64_t lanes)
{
    return (size_t)(k / 32) * dlab_pack_block_bytes(t, lanes);
}

/* 0 where such a matrix is used as stored. */
static inline size_t dlab_pack_bytes(const dlab_matrix *m, int64_t lanes)
{
    if (m->dtype != DLAB_Q4_0 && m->dtype != DLAB_Q4_1 && m->dtype != DLAB_Q8_0) return 0;
    return (size_t)dlab_ceil_div(m->n, lanes) * dlab_pack_tile_bytes(m->dtype, m->k, lanes);
}

typedef struct {
    dlab_matrix from, to;
} dlab_pack_args;

/* A task is a tile. */
extern const dlab_cpu_kernel dlab_cpu_pack_kernel;

#endif
