#include "kernels/ref/ref.h"

void dlab_ref_attn_values(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const dlab_desc_row *rows = dlab_desc_rows(desc);
    const int32_t dim = a->kv.head_dim, group = a->n_heads / a->kv.n_kv_heads;
    for (int32_t h = 0; h < a->n_heads; h++) {
        for (int64_t r = 0; r < a->n_rows; r++) {
            const float *scores = (const float *)dlab_host_ptr(a->scores) + ((int64_t)h * a->n_rows + r) * a->max_len;
            float *out = (float *)dlab_host_ptr(a->out) + (r * a->n_heads + h) * dim;
            for (int32_t i = 0; i < dim; i++) {
                double sum = 0;
                for (int32_t t = 0; t <= rows[r].pos; t++) {
                    const void *v = dlab_ref_cached_v(&a->kv, desc, rows[r].seq, t, h / group);
                    sum += (double)scores[t] * dlab_ref_element(v, a->kv.v_dtype, i);
                }
                out[i] = (float)sum;
            }
        }
    }
}
