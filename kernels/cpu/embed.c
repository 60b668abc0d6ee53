/* Rows of the embedding table, unpacked. A task is a row. */
#include "kernels/cpu/cpu_pack.h"
#include "kernels/cpu/simd.h"

static int64_t embed_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_embed_args *)args)->n_rows;
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
        if (a->table.layout) row = dlab_pack_row(&a->table, rows[r].token, scratch);
        row_unpack(row, a->table.dtype, a->table.k, (float *)dlab_host_ptr(a->out) + r * a->table.k);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(embed) = {"embed", 1, embed_tasks, embed_run, embed_scratch, true};
