#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

/* One entry of the sorted list; the op's scratch is V of them a row. */
typedef struct {
    float logit;
    int32_t id;
} candidate;

static int by_logit_then_id(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* e^((logit − largest)/temperature). Equal to the largest is 1, so that infinite logits are no NaN. */
static double weight_of(float logit, float largest, float temperature)
{
    return logit == largest ? 1 : exp(((double)logit - (double)largest) / (double)temperature);
}

/* list: n candidates in order. */
static int32_t draw_from(const candidate *list, int32_t n, const dlab_desc_logit *how)
{
    const double u = (double)(how->draw >> 11) * 0x1p-53;
    double total = 0;
    for (int32_t i = 0; i < n; i++) total += weight_of(list[i].logit, list[0].logit, how->temperature);
    double head = 0;
    int32_t kept = 0;
    do head += weight_of(list[kept++].logit, list[0].logit, how->temperature);
    while (kept < n && head < (double)how->top_p * total);
    double sum = 0;
    for (int32_t i = 0; i < kept; i++) {
        sum += weight_of(list[i].logit, list[0].logit, how->temperature);
        if (sum > u * head) return list[i].id;
    }
    return list[kept - 1].id;
}

/* Row i of the logits. */
static int32_t sample_one(const dlab_sample_args *a, int64_t i, const dlab_desc_logit *how)
{
    const float *logits = (const float *)dlab_host_ptr(a->logits) + i * a->vocab;
    const int32_t best = dlab_ref_argmax(logits, a->vocab);
    if (best < 0 || how->temperature == 0) return best;
    candidate *list = (candidate *)dlab_host_ptr(a->work) + i * a->vocab;
    for (int32_t id = 0; id < a->vocab; id++) list[id] = (candidate){logits[id], id};
    qsort(list, (size_t)a->vocab, sizeof *list, by_logit_then_id);
    return draw_from(list, how->top_k > 0 && how->top_k < a->vocab ? how->top_k : a->vocab, how);
}

void dlab_ref_sample(const void *args)
{
    const dlab_sample_args *a = args;
    const dlab_desc_logit *wanted = dlab_desc_logits(dlab_host_ptr(a->desc)) + a->first;
    int32_t *tokens = (int32_t *)dlab_host_ptr(a->tokens) + a->first;
    for (int64_t i = 0; i < a->n_logits; i++) tokens[i] = sample_one(a, i, &wanted[i]);
}
