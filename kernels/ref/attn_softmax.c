#include <math.h>

#include "kernels/ref/ref.h"

void dlab_ref_attn_softmax(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    for (int32_t h = 0; h < a->n_heads; h++) {
        for (int64_t r = 0; r < a->n_rows; r++) {
            float *scores = (float *)dlab_host_ptr(a->scores) + ((int64_t)h * a->n_rows + r) * a->max_len;
            double largest = -INFINITY, total = 0;
            for (int32_t t = 0; t <= rows[r].pos; t++) largest = fmax(largest, (double)scores[t]);
            for (int32_t t = 0; t <= rows[r].pos; t++) total += exp((double)scores[t] - largest);
            for (int32_t t = 0; t <= rows[r].pos; t++) scores[t] = (float)(exp((double)scores[t] - largest) / total);
        }
    }
}
