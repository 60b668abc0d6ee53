#include <math.h>

#include "kernels/ref/ref.h"

void dlab_ref_attn_softmax(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const int32_t group = a->n_heads / a->kv.n_kv_heads;
    for (int32_t h = 0; h < a->n_heads; h++) {
        for (int64_t r = 0; r < a->n_rows; r++) {
            float *scores = (float *)dlab_host_ptr(a->scores) + ((int64_t)h * a->n_rows + r) * a->max_len;
            double largest = -INFINITY, total = 0;
            int32_t n = 0;
            dlab_ref_walk w = dlab_ref_visit(&a->spans, desc, a->n_rows, r, h / group);
            for (int32_t t; dlab_ref_next(&w, &t);) n++;
            for (int32_t i = 0; i < n; i++) largest = fmax(largest, (double)scores[i]);
            for (int32_t i = 0; i < n; i++) total += exp((double)scores[i] - largest);
            for (int32_t i = 0; i < n; i++) scores[i] = (float)(exp((double)scores[i] - largest) / total);
        }
    }
}
