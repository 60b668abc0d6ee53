/* What the ops declared that a step moves and computes, and the rates that follow from the time it took. Figures are those of
 * the steps of dlab_events_work_kind. */
#include <math.h>
#include <stdlib.h>

#include "results/events.h"

static dlab_step_sum decode_sum(const dlab_run *r, const dlab_metric_window *w)
{
    dlab_step_sum sum = {0};
    dlab_step_facts *facts = dlab_events_steps(r, w);
    if (!facts) return sum;
    sum = dlab_events_sum(r, facts, dlab_events_work_kind(r, facts));
    free(facts);
    return sum;
}

#define PER_STEP(name, field)                                                                                          \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        dlab_step_sum s = decode_sum(r, w);                                                                            \
        *out = DLAB_METRIC_MISSING;                                                                                    \
        if (s.steps > 0) *out = (dlab_metric_value){.value = (double)s.field / (double)s.steps, .n = s.steps};         \
    }
PER_STEP(bytes_step, bytes)
PER_STEP(kv_bytes_step, kv_bytes)
PER_STEP(inter_bytes, inter_bytes)
PER_STEP(flops_step, flops)
PER_STEP(launches, launches)

#define PER_SECOND(name, field)                                                                                        \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        dlab_step_sum s = decode_sum(r, w);                                                                            \
        *out = DLAB_METRIC_MISSING;                                                                                    \
        if (s.seconds > 0 && s.field > 0) *out = (dlab_metric_value){.value = s.field / s.seconds, .n = s.steps};      \
    }
PER_SECOND(bytes_ps, bytes)
PER_SECOND(flops_ps, flops)

/* Pure decode steps alone: a prompt's rows see little of the text that will be there. */
static void rho(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    dlab_step_facts *facts = dlab_events_steps(r, w);
    if (!facts) return;
    dlab_step_sum s = dlab_events_sum(r, facts, DLAB_STEP_DECODE);
    if (s.kv_dense_bytes > 0) *out = (dlab_metric_value){.value = s.kv_bytes / s.kv_dense_bytes, .n = s.steps};
    free(facts);
}

static void nonfinite(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int64_t rows = 0;
    *out = DLAB_METRIC_MISSING;
    for (size_t i = 0; i < r->n_steps; i++) {
        if (r->steps[i].nonfinite < 0) return;
        rows += r->steps[i].nonfinite;
    }
    if (r->n_steps > 0) *out = (dlab_metric_value){.value = (double)rows, .n = (int64_t)r->n_steps};
}

static void steps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    *out = DLAB_METRIC_MISSING;
    if (r->n_steps > 0) *out = (dlab_metric_value){.value = (double)r->n_steps, .n = 1};
}

static void flops_token(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    dlab_step_sum s = dlab_events_sum(r, NULL, DLAB_STEPS_ALL);
    *out = DLAB_METRIC_MISSING;
    if (r->n_tokens > 0 && s.steps > 0)
        *out = (dlab_metric_value){.value = s.flops / (double)r->n_tokens, .n = (int64_t)r->n_tokens};
}

static const dlab_metric metrics[] = {
    {"bytes_step", "B", DLAB_LOWER_IS_BETTER, true,
     "bytes that the ops of a decode step declare to move, mean over the steps", bytes_step},
    {"kv_bytes_step", "B", DLAB_LOWER_IS_BETTER, true, "those of them that are read from the KV store", kv_bytes_step},
    {"inter_bytes", "B", DLAB_LOWER_IS_BETTER, true,
     "bytes of attention's intermediate results, written and read back, mean over the decode steps", inter_bytes},
    {"rho", "1", DLAB_LOWER_IS_BETTER, true,
     "share of the cache that attention read: KV bytes read in decode steps / what dense attention reads", rho},
    {"flops_step", "FLOP", DLAB_LOWER_IS_BETTER, true,
     "operations that the ops of a decode step declare, mean over the steps", flops_step},
    {"launches", "1", DLAB_LOWER_IS_BETTER, true, "ops launched in a decode step, mean over the steps", launches},
    {"steps", "1", DLAB_NEITHER, false, "steps of the run, prefill included", steps},
    {"flops_token", "FLOP", DLAB_LOWER_IS_BETTER, false, "declared operations of the whole run / output tokens",
     flops_token},
    {"nonfinite", "1", DLAB_LOWER_IS_BETTER, false, "K9: rows in which NaN or infinity came up", nonfinite},
    {"bytes_ps", "B/s", DLAB_NEITHER, true, "declared bytes of decode steps / their time: achieved bandwidth",
     bytes_ps},
    {"flops_ps", "FLOP/s", DLAB_NEITHER, true, "declared operations of decode steps / their time: achieved compute",
     flops_ps},
};

const dlab_metric_family dlab_metrics_work = {metrics, sizeof metrics / sizeof *metrics};
