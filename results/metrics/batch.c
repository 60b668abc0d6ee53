/* How full the steps were. */
#include <math.h>

#include "results/events.h"

static void share(double part, double whole, int64_t n, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    if (whole > 0) *out = (dlab_metric_value){.value = part / whole, .n = n};
}

static void pad_util(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    dlab_step_sum s = dlab_events_sum(r, NULL, DLAB_STEPS_ALL);
    share((double)(s.rows - s.pad_rows), (double)s.rows, s.steps, out);
}

/* Skipped padding costs nothing and is no less a hole in the batch. */
static void pad_share(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int64_t padding = 0, rows = 0;
    *out = DLAB_METRIC_MISSING;
    for (size_t i = 0; i < r->n_steps; i++) {
        const dlab_ev_step *s = &r->steps[i];
        if (s->pad_skipped < 0) return;
        padding += (int64_t)s->pad_rows + s->pad_skipped;
        rows += (int64_t)s->rows + s->pad_skipped;
    }
    share((double)padding, (double)rows, (int64_t)r->n_steps, out);
}

static void slot_util(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    dlab_step_sum s = dlab_events_sum(r, NULL, DLAB_STEPS_ALL);
    share((double)s.seqs, (double)s.slots, s.steps, out);
}

static void budget_util(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    dlab_step_sum s = dlab_events_sum(r, NULL, DLAB_STEPS_ALL);
    share((double)s.budget_rows, (double)s.budget, s.budget_steps, out);
}

static void device_busy(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    dlab_step_sum s = dlab_events_sum(r, NULL, DLAB_STEPS_ALL);
    share(s.seconds, s.steps > 0 ? dlab_events_length_ns(r) * 1e-9 : 0, s.steps, out);
}

static void seqs_peak(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int32_t most = 0;
    for (size_t i = 0; i < r->n_steps; i++)
        if (r->steps[i].seqs > most) most = r->steps[i].seqs;
    *out = DLAB_METRIC_MISSING;
    if (r->n_steps > 0) *out = (dlab_metric_value){.value = most, .n = (int64_t)r->n_steps};
}

/* Weighted by time, as everything that a step holds; a step of no length (a clock too coarse) counts as a nanosecond. */
static void waiting_mean(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double sum = 0, weights = 0;
    *out = DLAB_METRIC_MISSING;
    for (size_t i = 0; i < r->n_steps; i++) {
        const double weight = fmax(dlab_event_step_seconds(&r->steps[i]), 1e-9);
        if (r->steps[i].waiting < 0) return;
        sum += weight * r->steps[i].waiting;
        weights += weight;
    }
    share(sum, weights, (int64_t)r->n_steps, out);
}

static void waiting_peak(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int32_t most = 0;
    *out = DLAB_METRIC_MISSING;
    for (size_t i = 0; i < r->n_steps; i++) {
        if (r->steps[i].waiting < 0) return;
        if (r->steps[i].waiting > most) most = r->steps[i].waiting;
    }
    if (r->n_steps > 0) *out = (dlab_metric_value){.value = most, .n = (int64_t)r->n_steps};
}

/* Summed over the steps; one that does not know makes it missing. */
#define TOTAL(name, field)                                                                                             \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        int64_t sum = 0;                                                                                               \
        *out = DLAB_METRIC_MISSING;                                                                                    \
        for (size_t i = 0; i < r->n_steps; i++) {                                                                      \
            if (r->steps[i].field < 0) return;                                                                         \
            sum += r->steps[i].field;                                                                                  \
        }                                                                                                              \
        if (r->n_steps > 0) *out = (dlab_metric_value){.value = (double)sum, .n = (int64_t)r->n_steps};                \
    }
TOTAL(preemptions, preempted)
TOTAL(swaps, swapped_out)
TOTAL(swap_bytes, swap_bytes)

static const dlab_metric metrics[] = {
    {"pad_util", "1", DLAB_HIGHER_IS_BETTER, false, "useful rows / rows computed, padding being the rest", pad_util},
    {"pad_share", "1", DLAB_LOWER_IS_BETTER, false, "padding rows, computed or skipped / useful rows and padding",
     pad_share},
    {"slot_util", "1", DLAB_HIGHER_IS_BETTER, false, "live sequences / (batch.size x steps)", slot_util},
    {"budget_util", "1", DLAB_HIGHER_IS_BETTER, false,
     "rows / the rows that the budget allowed, over the steps that had one; missing without a budget", budget_util},
    {"seqs_peak", "1", DLAB_HIGHER_IS_BETTER, false, "most live sequences in one step", seqs_peak},
    {"preemptions", "1", DLAB_LOWER_IS_BETTER, false,
     "sequences that gave their place back, to be computed again or copied back later", preemptions},
    {"swaps", "1", DLAB_LOWER_IS_BETTER, false, "those of them that were copied out of the KV store", swaps},
    {"swap_bytes", "B", DLAB_LOWER_IS_BETTER, false, "bytes copied out of the KV store and back", swap_bytes},
    {"waiting_mean", "1", DLAB_LOWER_IS_BETTER, false, "requests queued when a step began, mean over the steps' time",
     waiting_mean},
    {"waiting_peak", "1", DLAB_LOWER_IS_BETTER, false, "most requests queued when a step began", waiting_peak},
    {"device_busy", "1", DLAB_HIGHER_IS_BETTER, false, "time inside steps / the whole run", device_busy},
};

const dlab_metric_family dlab_metrics_batch = {metrics, sizeof metrics / sizeof *metrics};
