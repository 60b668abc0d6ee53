/* Rows of the embedding table, unpacked. A task is a row. */
#include "kernels/cpu/cpu_pack.h"
#include "kernels/cpu/simd.h"

static int64_t embed_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_embed_args *)args)->n_rows;
}

/* One row of a packed table, put together again as the file has it. */
static const void *gather_row(const dlab_matrix *m, int64_t row, uint8_t *to)
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

static size_t embed_scratch(const void *args)
{
    const dlab_matrix *m = &((const dlab_embed_args *)args)->table;
    return m->layout ? dlab_dtype_bytes(m->dtype, m->k) : 0;
}

static void embed_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_embed_args *a = args;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    const size_t row_bytes = dlab_dtype_bytes(a->table.dtype, a->table.k);
    for (int64_t r = begin; r < end; r++) {
        const void *row = (const char *)dlab_host_ptr(a->table.at) + (size_t)rows[r].token * row_bytes;
        if (a->table.layout) row = gather_row(&a->table, rows[r].token, scratch);
        row_unpack(row, a->table.dtype, a->table.k, (float *)dlab_host_ptr(a->out) + r * a->table.k);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(embed) = {"embed", 1, embed_tasks, embed_run, embed_scratch, true};
