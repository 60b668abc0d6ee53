/* Bytes: the pools' high-water marks, and the process's. */
#include "results/events.h"

#define FACT(name, field)                                                                                              \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        *out = DLAB_METRIC_MISSING;                                                                                    \
        if (r->field >= 0) *out = (dlab_metric_value){.value = (double)r->field, .n = 1};                              \
    }
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
    ROW(mem_peak, "high-water mark of all pools together"),
    ROW(mem_weights, "high-water mark of the weights' pool"),
    ROW(mem_kv, "high-water mark of the KV pool"),
    ROW(mem_act, "high-water mark of the activations' pool"),
    ROW(mem_scratch, "high-water mark of the scratch pool"),
    ROW(rss_peak, "high-water mark of the process's resident memory, a cross-check"),
};

const dlab_metric_family dlab_metrics_memory = {metrics, sizeof metrics / sizeof *metrics};
