#include <math.h>

#include "kernels/ref/ref.h"

static double nll_of(const float *logits, int32_t vocab, int32_t target)
{
    double largest = -INFINITY, total = 0;
    for (int32_t i = 0; i < vocab; i++) largest = fmax(largest, (double)logits[i]);
    for (int32_t i = 0; i < vocab; i++) total += exp((double)logits[i] - largest);
    return log(total) - ((double)logits[target] - largest);
}

void dlab_ref_score(const void *args)
{
    const dlab_score_args *a = args;
    const dlab_desc_logit *wanted = dlab_desc_logits(dlab_host_ptr(a->desc)) + a->first;
    double *nll = (double *)dlab_host_ptr(a->nll) + a->first;
    int32_t *top1 = (int32_t *)dlab_host_ptr(a->top1) + a->first;
    for (int64_t i = 0; i < a->n_logits; i++) {
        const float *logits = (const float *)dlab_host_ptr(a->logits) + i * a->vocab;
        nll[i] = wanted[i].target < 0 ? 0 : nll_of(logits, a->vocab, wanted[i].target);
        top1[i] = dlab_ref_argmax(logits, a->vocab);
    }
}
