#include "kernels/ref/ref.h"

void dlab_ref_attn_scores(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const dlab_desc_row *rows = dlab_desc_rows(desc);
    const int32_t dim = a->kv.head_dim, group = a->n_heads / a->kv.n_kv_heads;
    for (int32_t h = 0; h < a->n_heads; h++) {
        for (int64_t r = 0; r < a->n_rows; r++) {
            const float *q = (const float *)dlab_host_ptr(a->q) + (r * a->n_heads + h) * dim;
            float *scores = (float *)dlab_host_ptr(a->scores) + ((int64_t)h * a->n_rows + r) * a->max_len;
            for (int32_t t = 0; t <= rows[r].pos; t++) {
                const void *k = dlab_ref_cached_k(&a->kv, desc, rows[r].seq, t, h / group);
                scores[t] = (float)(dlab_ref_dot(q, k, a->kv.k_dtype, dim) * (double)a->scale);
            }
        }
    }
}
