/* Negative log-likelihood of each row's target, and its likeliest token. A task is a row. */
#include <math.h>

#include "kernels/cpu/argmax.h"
#include "kernels/cpu/cpu.h"

static int64_t score_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_score_args *)args)->n_logits;
}

static double nll_of(const float *logits, int32_t vocab, int32_t target)
{
    const double largest = (double)row_max(logits, vocab);
    double total = 0;
    for (int32_t i = 0; i < vocab; i++) total += exp((double)logits[i] - largest);
    return log(total) - ((double)logits[target] - largest);
}

static void score_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_score_args *a = args;
    const dlab_desc_logit *wanted = dlab_desc_logits(dlab_host_ptr(a->desc)) + a->first;
    double *nll = (double *)dlab_host_ptr(a->nll) + a->first;
    int32_t *top1 = (int32_t *)dlab_host_ptr(a->top1) + a->first;
    for (int64_t i = begin; i < end; i++) {
        const float *logits = (const float *)dlab_host_ptr(a->logits) + i * a->vocab;
        nll[i] = wanted[i].target < 0 ? 0 : nll_of(logits, a->vocab, wanted[i].target);
        top1[i] = row_argmax(logits, a->vocab);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(score) = {"score", 1, score_tasks, score_run, NULL, false};
