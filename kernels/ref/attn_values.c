#include <assert.h>

#include "kernels/ref/ref.h"

void dlab_ref_attn_values(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const int32_t dim = a->kv.head_dim, group = a->n_heads / a->kv.n_kv_heads;
    assert(dim <= DLAB_REF_MAX_HEAD_DIM);
    for (int32_t h = 0; h < a->n_heads; h++) {
        for (int64_t r = 0; r < a->n_rows; r++) {
            const float *scores = (const float *)dlab_host_ptr(a->scores) + ((int64_t)h * a->n_rows + r) * a->max_len;
            float *out = (float *)dlab_host_ptr(a->out) + (r * a->n_heads + h) * dim;
            double sum[DLAB_REF_MAX_HEAD_DIM] = {0}, v[DLAB_REF_MAX_HEAD_DIM];
            dlab_ref_walk w = dlab_ref_visit(&a->spans, desc, a->n_rows, r, h / group);
            for (int32_t t; dlab_ref_next(&w, &t); scores++) {
                dlab_ref_cached_v(&a->kv, desc, dlab_desc_rows(desc)[r].seq, t, h / group, v);
                for (int32_t i = 0; i < dim; i++) sum[i] += (double)*scores * v[i];
            }
            for (int32_t i = 0; i < dim; i++) out[i] = (float)sum[i];
        }
    }
}
