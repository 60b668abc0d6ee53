#include <assert.h>

#include "kernels/ref/ref.h"

void dlab_ref_attn_scores(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const int32_t dim = a->kv.head_dim, group = a->n_heads / a->kv.n_kv_heads;
    double k[DLAB_REF_MAX_HEAD_DIM];
    assert(dim <= DLAB_REF_MAX_HEAD_DIM);
    for (int32_t h = 0; h < a->n_heads; h++) {
        for (int64_t r = 0; r < a->n_rows; r++) {
            const float *q = (const float *)dlab_host_ptr(a->q) + (r * a->n_heads + h) * dim;
            float *scores = (float *)dlab_host_ptr(a->scores) + ((int64_t)h * a->n_rows + r) * a->max_len;
            dlab_ref_walk w = dlab_ref_visit(&a->spans, desc, a->n_rows, r, h / group);
            for (int32_t t; dlab_ref_next(&w, &t);) {
                dlab_ref_cached_k(&a->kv, desc, dlab_desc_rows(desc)[r].seq, t, h / group, k);
                *scores++ = (float)(dlab_ref_dot(q, k, dim) * (double)a->scale);
            }
        }
    }
}
