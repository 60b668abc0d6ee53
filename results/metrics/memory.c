/* Bytes: the pools' high-water marks, the process's, and how much of the KV memory holds tokens. */
#include <math.h>

#include "results/events.h"

static void bytes(int64_t b, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    if (b >= 0) *out = (dlab_metric_value){.value = (double)b, .n = 1};
}

/* Means over the steps, weighted by their length; a step of no length (a clock too coarse) counts as a nanosecond. */
static void kv_means(const dlab_run *r, double *reserved, double *used)
{
    double weights = 0;
    *reserved = *used = 0;
    for (size_t i = 0; i < r->n_steps; i++) {
        const dlab_ev_step *s = &r->steps[i];
        double weight = fmax(dlab_event_step_seconds(s), 1e-9);
        weights += weight;
        *reserved += weight * (double)s->kv_reserved;
        *used += weight * (double)s->kv_used;
    }
    *reserved = weights > 0 ? *reserved / weights : NAN;
    *used = weights > 0 ? *used / weights : NAN;
}

static void kv_reserved(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double reserved, used;
    kv_means(r, &reserved, &used);
    *out = (dlab_metric_value){.value = reserved, .n = (int64_t)r->n_steps};
}

static void kv_used(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double reserved, used;
    kv_means(r, &reserved, &used);
    *out = (dlab_metric_value){.value = used, .n = (int64_t)r->n_steps};
}

static void kv_util(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double reserved, used;
    kv_means(r, &reserved, &used);
    *out = DLAB_METRIC_MISSING;
    if (reserved > 0) *out = (dlab_metric_value){.value = used / reserved, .n = (int64_t)r->n_steps};
}

#define FACT(name, field)                                                                                              \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        bytes(r->field, out);                                                                                          \
    }
FACT(kv_pool, kv_pool)
FACT(kv_growths, kv_growths)
FACT(mem_peak, mem_peak)
FACT(mem_weights, pool_peak[DLAB_POOL_WEIGHTS])
FACT(mem_kv, pool_peak[DLAB_POOL_KV])
FACT(mem_act, pool_peak[DLAB_POOL_ACTIVATIONS])
FACT(mem_scratch, pool_peak[DLAB_POOL_SCRATCH])
FACT(rss_peak, rss_peak)

#define ROW(name, text)                                                                                                \
    {                                                                                                                  \
        "" #name, "B", DLAB_LOWER_IS_BETTER, false, text, name                                                         \
    }

static const dlab_metric metrics[] = {
    ROW(kv_reserved, "bytes of KV memory assigned to live sequences, mean over the steps' time"),
    ROW(kv_used, "bytes of KV memory that hold live tokens, mean over the steps' time"),
    {"kv_util", "1", DLAB_HIGHER_IS_BETTER, false, "kv_used / kv_reserved", kv_util},
    ROW(kv_pool, "size of the KV store itself"),
    {"kv_growths", "1", DLAB_LOWER_IS_BETTER, false, "reallocations of the KV store", kv_growths},
    ROW(mem_peak, "high-water mark of all pools together"),
    ROW(mem_weights, "high-water mark of the weights' pool"),
    ROW(mem_kv, "high-water mark of the KV pool"),
    ROW(mem_act, "high-water mark of the activations' pool"),
    ROW(mem_scratch, "high-water mark of the scratch pool"),
    ROW(rss_peak, "high-water mark of the process's resident memory, a cross-check"),
};

const dlab_metric_family dlab_metrics_memory = {metrics, sizeof metrics / sizeof *metrics};
