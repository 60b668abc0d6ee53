#include <assert.h>
#include <math.h>

#include "kernels/ref/ref.h"

/* The textbook form in three passes: largest score, weights, weighted sum. */
static void attend(const dlab_attn_fused_args *a, const dlab_desc_head *desc, int64_t row, int32_t head)
{
    const int32_t dim = a->kv.head_dim, kv_head = head / (a->n_heads / a->kv.n_kv_heads);
    const int32_t seq = dlab_desc_rows(desc)[row].seq;
    const int64_t at = (row * a->n_heads + head) * dim;
    const float *q = (const float *)dlab_host_ptr(a->q) + at;
    float *out = (float *)dlab_host_ptr(a->out) + at;
    double largest = -INFINITY, total = 0, sum[DLAB_REF_MAX_HEAD_DIM] = {0}, cached[DLAB_REF_MAX_HEAD_DIM];
    assert(dim <= DLAB_REF_MAX_HEAD_DIM);
    int32_t t;
    for (dlab_ref_walk w = dlab_ref_visit(&a->spans, desc, a->n_rows, row, kv_head); dlab_ref_next(&w, &t);) {
        dlab_ref_cached_k(&a->kv, desc, seq, t, kv_head, cached);
        largest = fmax(largest, dlab_ref_dot(q, cached, dim) * (double)a->scale);
    }
    for (dlab_ref_walk w = dlab_ref_visit(&a->spans, desc, a->n_rows, row, kv_head); dlab_ref_next(&w, &t);) {
        dlab_ref_cached_k(&a->kv, desc, seq, t, kv_head, cached);
        const double weight = exp(dlab_ref_dot(q, cached, dim) * (double)a->scale - largest);
        dlab_ref_cached_v(&a->kv, desc, seq, t, kv_head, cached);
        total += weight;
        for (int32_t i = 0; i < dim; i++) sum[i] += weight * cached[i];
    }
    for (int32_t i = 0; i < dim; i++) out[i] = (float)(sum[i] / total);
}

void dlab_ref_attn_fused(const void *args)
{
    const dlab_attn_fused_args *a = args;
    for (int64_t r = 0; r < a->n_rows; r++)
        for (int32_t h = 0; h < a->n_heads; h++) attend(a, dlab_host_ptr(a->desc), r, h);
}
