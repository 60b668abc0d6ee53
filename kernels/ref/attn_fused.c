#include <assert.h>
#include <math.h>

#include "kernels/ref/ref.h"

#define MAX_HEAD_DIM 1024

/* The textbook form in three passes: largest score, weights, weighted sum. */
static void attend(const dlab_attn_fused_args *a, const dlab_desc_head *desc, int64_t row, int32_t head)
{
    const dlab_desc_row *r = &dlab_desc_rows(desc)[row];
    const int32_t dim = a->kv.head_dim, kv_head = head / (a->n_heads / a->kv.n_kv_heads);
    const int64_t at = (row * a->n_heads + head) * dim;
    const float *q = (const float *)dlab_host_ptr(a->q) + at;
    float *out = (float *)dlab_host_ptr(a->out) + at;
    double largest = -INFINITY, total = 0, sum[MAX_HEAD_DIM] = {0};
    assert(dim <= MAX_HEAD_DIM);
    for (int32_t t = 0; t <= r->pos; t++) {
        const void *k = dlab_ref_cached_k(&a->kv, desc, r->seq, t, kv_head);
        largest = fmax(largest, dlab_ref_dot(q, k, a->kv.k_dtype, dim) * (double)a->scale);
    }
    for (int32_t t = 0; t <= r->pos; t++) {
        const void *k = dlab_ref_cached_k(&a->kv, desc, r->seq, t, kv_head);
        const void *v = dlab_ref_cached_v(&a->kv, desc, r->seq, t, kv_head);
        const double weight = exp(dlab_ref_dot(q, k, a->kv.k_dtype, dim) * (double)a->scale - largest);
        total += weight;
        for (int32_t i = 0; i < dim; i++) sum[i] += weight * dlab_ref_element(v, a->kv.v_dtype, i);
    }
    for (int32_t i = 0; i < dim; i++) out[i] = (float)(sum[i] / total);
}

void dlab_ref_attn_fused(const void *args)
{
    const dlab_attn_fused_args *a = args;
    for (int64_t r = 0; r < a->n_rows; r++)
        for (int32_t h = 0; h < a->n_heads; h++) attend(a, dlab_host_ptr(a->desc), r, h);
}
