/* The next token of each row of logits. A task is a row. */
#include <math.h>

#include "kernels/cpu/argmax.h"
#include "kernels/cpu/cpu.h"

#define DIGIT_BITS 8
#define DIGITS     (1 << DIGIT_BITS)
#define PASSES     (32 / DIGIT_BITS)

/* One entry of the sorted list. key: ascending where the logit descends. */
typedef struct {
    uint32_t key;
    int32_t id;
} candidate;

static int64_t sample_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_sample_args *)args)->n_logits;
}

/* The other half of the sort, then the weights. */
static size_t sample_scratch(const void *args)
{
    const dlab_sample_args *a = args;
    return a->draws ? (size_t)a->vocab * sizeof(double) : 0;
}

static uint32_t key_of(float logit)
{
    const uint32_t u = load_u32(&(float){logit + 0.0f}); /* −0 becomes 0: they tie */
    const uint32_t ascending = u & 0x80000000u ? ~u : u | 0x80000000u;
    return ~ascending;
}

/* By key; equal keys stay in order, so that ids ascend. An even number of passes: the result is in `list`. */
static void sort_candidates(candidate *list, candidate *other, int32_t n)
{
    uint32_t start[PASSES][DIGITS] = {{0}};
    for (int32_t i = 0; i < n; i++)
        for (int p = 0; p < PASSES; p++) start[p][list[i].key >> (DIGIT_BITS * p) & (DIGITS - 1)]++;
    for (int p = 0; p < PASSES; p++) {
        uint32_t sum = 0;
        for (int d = 0; d < DIGITS; d++) {
            const uint32_t count = start[p][d];
            start[p][d] = sum;
            sum += count;
        }
        for (int32_t i = 0; i < n; i++) other[start[p][list[i].key >> (DIGIT_BITS * p) & (DIGITS - 1)]++] = list[i];
        candidate *t = list;
        list = other;
        other = t;
    }
}

/* The weights of n candidates in order, relative to the first's; their sum. An infinite first gives no NaN. */
static double fill_weights(const candidate *list, int32_t n, const float *logits, float temperature, double *weight)
{
    const float largest = logits[list[0].id];
    double total = 0;
    for (int32_t i = 0; i < n; i++) {
        const float logit = logits[list[i].id];
        weight[i] = logit == largest ? 1 : exp(((double)logit - (double)largest) / (double)temperature);
        total += weight[i];
    }
    return total;
}

static int32_t draw_from(const candidate *list, int32_t n, const double *weight, double total, double top_p, double u)
{
    double head = 0, sum = 0;
    int32_t kept = 0;
    do head += weight[kept++];
    while (kept < n && head < top_p * total);
    for (int32_t i = 0; i < kept; i++) {
        sum += weight[i];
        if (sum > u * head) return list[i].id;
    }
    return list[kept - 1].id;
}

static int32_t sample_row(const float *logits, int32_t vocab, const dlab_desc_logit *how, candidate *list,
                          void *scratch)
{
    if (row_argmax(logits, vocab) < 0) return -1;
    for (int32_t i = 0; i < vocab; i++) list[i] = (candidate){key_of(logits[i]), i};
    sort_candidates(list, scratch, vocab);
    const int32_t n = how->top_k > 0 && how->top_k < vocab ? how->top_k : vocab;
    double *weight = scratch;
    const double total = fill_weights(list, n, logits, how->temperature, weight);
    return draw_from(list, n, weight, total, (double)how->top_p, (double)(how->draw >> 11) * 0x1p-53);
}

static void sample_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_sample_args *a = args;
    const dlab_desc_logit *wanted = dlab_desc_logits(dlab_host_ptr(a->desc)) + a->first;
    const float *logits = dlab_host_ptr(a->logits);
    int32_t *tokens = (int32_t *)dlab_host_ptr(a->tokens) + a->first;
    for (int64_t i = begin; i < end; i++) {
        const float *row = logits + i * a->vocab;
        if (wanted[i].temperature == 0)
            tokens[i] = row_argmax(row, a->vocab);
        else
            tokens[i] =
                sample_row(row, a->vocab, &wanted[i], (candidate *)dlab_host_ptr(a->work) + i * a->vocab, scratch);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(sample) = {"sample", 1, sample_tasks, sample_run, sample_scratch, false};
