#include <string.h>

#include "kernels/ref/ref.h"

void dlab_ref_gather(const void *args)
{
    const dlab_gather_args *a = args;
    const dlab_desc_logit *wanted = dlab_desc_logits(dlab_host_ptr(a->desc)) + a->first;
    const float *x = dlab_host_ptr(a->x);
    float *out = dlab_host_ptr(a->out);
    for (int64_t i = 0; i < a->n_logits; i++)
        memcpy(out + i * a->dim, x + (int64_t)wanted[i].row * a->dim, (size_t)a->dim * sizeof(float));
}
