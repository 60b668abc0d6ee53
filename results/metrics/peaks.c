/* How near a run came to what the machine does at most (results/roofline.h). */
#include <math.h>
#include <stdlib.h>

#include "results/events.h"
#include "results/roofline.h"

/* Seconds of steps: what they took, what their bytes alone and their operations alone would take, and what is allowed. */
typedef struct {
    int64_t steps;
    double took, bytes, operations, allowed;
} peak_sum;

/* Without a peak, or without what a step declares, a sum is NaN, and so is all that is made of it. */
static void add_step(const dlab_run *r, const dlab_ev_step *s, peak_sum *sum)
{
    const dlab_step_bound b = dlab_step_bounds(r, s);
    sum->steps++;
    sum->took += dlab_event_step_seconds(s);
    sum->bytes += b.bytes;
    sum->operations += b.operations;
    sum->allowed += b.allowed;
}

static peak_sum sum_of(const dlab_run *r, const dlab_step_facts *facts, int kind)
{
    peak_sum sum = {0};
    for (size_t i = 0; i < r->n_steps; i++)
        if (dlab_events_counts(facts, i, kind)) add_step(r, &r->steps[i], &sum);
    return sum;
}

static peak_sum decode_sum(const dlab_run *r, const dlab_metric_window *w)
{
    peak_sum sum = {0};
    dlab_step_facts *facts = dlab_events_steps(r, w);
    if (!facts) return sum;
    sum = sum_of(r, facts, dlab_events_work_kind(r, facts));
    free(facts);
    return sum;
}

static dlab_metric_value share(double part, const peak_sum *sum)
{
    const double value = part / sum->took;
    if (!(part > 0) || !isfinite(value)) return DLAB_METRIC_MISSING;
    return (dlab_metric_value){.value = value, .n = sum->steps};
}

static dlab_metric_value at_most_one(dlab_metric_value v)
{
    if (v.value > 1) v.value = 1;
    return v;
}

static void roofline(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    const peak_sum sum = decode_sum(r, w);
    *out = at_most_one(share(sum.allowed, &sum));
}

static void mbu(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    const peak_sum sum = decode_sum(r, w);
    *out = share(sum.bytes, &sum);
}

static void mfu(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    const peak_sum sum = decode_sum(r, w);
    *out = share(sum.operations, &sum);
}

static void roofline_prefill(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w; /* prompts have no token index */
    *out = DLAB_METRIC_MISSING;
    dlab_step_facts *facts = dlab_events_steps(r, &DLAB_WINDOW_ALL);
    if (!facts) return;
    const peak_sum sum = sum_of(r, facts, DLAB_STEP_PREFILL);
    *out = at_most_one(share(sum.allowed, &sum));
    free(facts);
}

static const dlab_metric metrics[] = {
    {"roofline", "1", DLAB_HIGHER_IS_BETTER, true,
     "time that the measured peaks would allow decode steps / their time, at most 1", roofline},
    {"mbu", "1", DLAB_HIGHER_IS_BETTER, true,
     "bandwidth share: time that the declared bytes of decode steps take at the peak of reading / their time", mbu},
    {"mfu", "1", DLAB_HIGHER_IS_BETTER, true,
     "compute share: time that the declared operations of decode steps take at their peaks / their time", mfu},
    {"roofline_prefill", "1", DLAB_HIGHER_IS_BETTER, false,
     "time that the measured peaks would allow pure prefill steps / their time, at most 1", roofline_prefill},
};

const dlab_metric_family dlab_metrics_peaks = {metrics, sizeof metrics / sizeof *metrics};
