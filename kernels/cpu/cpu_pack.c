#include "kernels/cpu/cpu_pack.h"

#include <string.h>

static int64_t pack_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_pack_args *a = args;
    return dlab_ceil_div(a->to.n, a->to.layout);
}

/* A tile of blocks: n outputs of the file's rows, the others zeros. heads: f16 numbers before a block's quants. */
static inline __attribute__((always_inline)) void pack_blocks(const uint8_t *from, size_t row, int64_t n,
                                                              int64_t n_blocks, int64_t lanes, const int64_t heads,
                                                              const int64_t groups, uint8_t *to)
{
    const int64_t block = 2 * heads + 4 * groups;
    for (int64_t o = 0; o < n; o++) {
        const uint8_t *p = from + (size_t)o * row;
        uint8_t *q = to;
        for (int64_t b = 0; b < n_blocks; b++, p += block, q += block * lanes) {
            for (int64_t h = 0; h < heads; h++) memcpy(q + 2 * (h * lanes + o), p + 2 * h, 2);
            for (int64_t s = 0; s < groups; s++)
                memcpy(q + 2 * heads * lanes + 4 * (s * lanes + o), p + 2 * heads + 4 * s, 4);
        }
    }
}

static void pack_values(const dlab_matrix *m, const uint8_t *from, int64_t n, int64_t lanes, uint8_t *to)
{
    const size_t size = dlab_dtype_bytes(m->dtype, 1), row = dlab_dtype_bytes(m->dtype, m->k);
    for (int64_t o = 0; o < n; o++) {
        const uint8_t *p = from + (size_t)o * row;
        for (int64_t k = 0; k < m->k; k++, p += size) memcpy(to + dlab_pack_offset(m->dtype, k, o, lanes), p, size);
    }
}

static void pack_tile(const dlab_matrix *m, const uint8_t *from, int64_t n, int64_t lanes, uint8_t *to)
{
    const size_t row = dlab_dtype_bytes(m->dtype, m->k), bytes = dlab_pack_tile_bytes(m->dtype, m->k, lanes);
    if (n < lanes || m->dtype == DLAB_BF16) memset(to, 0, bytes);
    switch (m->dtype) {
    case DLAB_Q4_0:
        pack_blocks(from, row, n, m->k / 32, lanes, 1, 4, to);
        break;
    case DLAB_Q4_1:
        pack_blocks(from, row, n, m->k / 32, lanes, 2, 4, to);
        break;
    case DLAB_Q8_0:
        pack_blocks(from, row, n, m->k / 32, lanes, 1, 8, to);
        break;
    default:
        pack_values(m, from, n, lanes, to);
        break;
    }
}

const void *dlab_pack_row(const dlab_matrix *m, int64_t row, uint8_t *to)
{
    const int64_t lanes = m->layout, o = row % lanes, block = dlab_dtype_block_bytes(m->dtype);
    const int64_t heads = m->dtype == DLAB_Q4_1 ? 2 : 1, groups = (block - 2 * heads) / 4;
    const uint8_t *p =
        (const uint8_t *)dlab_host_ptr(m->at) + (size_t)(row / lanes) * dlab_pack_tile_bytes(m->dtype, m->k, lanes);
    if (dlab_dtype_block(m->dtype) == 1) {
        const size_t size = dlab_dtype_bytes(m->dtype, 1);
        for (int64_t k = 0; k < m->k; k++)
            memcpy(to + (size_t)k * size, p + dlab_pack_offset(m->dtype, k, o, lanes), size);
        return to;
    }
    for (int64_t b = 0; b < m->k / 32; b++, p += dlab_pack_block_bytes(m->dtype, lanes)) {
        uint8_t *q = to + b * block;
        for (int64_t h = 0; h < heads; h++) memcpy(q + 2 * h, p + 2 * (h * lanes + o), 2);
        for (int64_t s = 0; s < groups; s++)
            memcpy(q + 2 * heads + 4 * s, p + 2 * heads * lanes + 4 * (s * lanes + o), 4);
    }
    return to;
}

static void pack_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_pack_args *a = args;
    const int64_t lanes = a->to.layout;
    const size_t row = dlab_dtype_bytes(a->from.dtype, a->from.k);
    const size_t bytes = dlab_pack_tile_bytes(a->to.dtype, a->to.k, lanes);
    for (int64_t t = begin; t < end; t++) {
        const uint8_t *from = (const uint8_t *)dlab_host_ptr(a->from.at) + (size_t)(t * lanes) * row;
        uint8_t *to = (uint8_t *)dlab_host_ptr(a->to.at) + (size_t)t * bytes;
        pack_tile(&a->from, from, dlab_min_i64(lanes, a->from.n - t * lanes), lanes, to);
    }
}

const dlab_cpu_kernel dlab_cpu_pack_kernel = {"pack", 1, pack_tasks, pack_run, NULL, false};
