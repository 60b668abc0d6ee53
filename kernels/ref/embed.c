#include <assert.h>

#include "kernels/ref/ref.h"

void dlab_ref_embed(const void *args)
{
    const dlab_embed_args *a = args;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    float *out = dlab_host_ptr(a->out);
    const int64_t dim = a->table.k;
    for (int64_t r = 0; r < a->n_rows; r++) {
        assert(rows[r].token >= 0 && rows[r].token < a->table.n);
        for (int64_t i = 0; i < dim; i++) out[r * dim + i] = (float)dlab_ref_weight(&a->table, rows[r].token, i);
    }
}
