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

static void preemptions(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int64_t n = 0;
    *out = DLAB_METRIC_MISSING;
    for (size_t i = 0; i < r->n_steps; i++) {
        if (r->steps[i].preempted < 0) return;
        n += r->steps[i].preempted;
    }
    if (r->n_steps > 0) *out = (dlab_metric_value){.value = (double)n, .n = (int64_t)r->n_steps};
}

static const dlab_metric metrics[] = {
    {"pad_util", "1", DLAB_HIGHER_IS_BETTER, false, "useful rows / rows computed, padding being the rest", pad_util},
    {"slot_util", "1", DLAB_HIGHER_IS_BETTER, false, "live sequences / (batch.size x steps)", slot_util},
    {"budget_util", "1", DLAB_HIGHER_IS_BETTER, false,
     "rows / the rows that the budget allowed, over the steps that had one; missing without a budget", budget_util},
    {"seqs_peak", "1", DLAB_HIGHER_IS_BETTER, false, "most live sequences in one step", seqs_peak},
    {"preemptions", "1", DLAB_LOWER_IS_BETTER, false,
     "sequences that gave their place back, to be computed again later", preemptions},
    {"device_busy", "1", DLAB_HIGHER_IS_BETTER, false, "time inside steps / the whole run", device_busy},
};

const dlab_metric_family dlab_metrics_batch = {metrics, sizeof metrics / sizeof *metrics};
