/* How near a run came to what the machine does at most. The peaks are the run's own: those of its threads and its
 * instruction set. A step could not be faster than its bytes at the bandwidth of a working set of that size, nor than its
 * operations at their peaks, those of int8, bf16 and f32 one after the other; the longer of both is what it is allowed. */
#include <math.h>
#include <stdlib.h>

#include "results/events.h"

/* Between two measured sizes along the logarithm of the size; beyond them the nearest. NaN: not known. */
static double bandwidth_at(const dlab_run *r, double bytes)
{
    const dlab_peak_row *p = r->peaks;
    const size_t n = r->n_peaks;
    if (n == 0 || isnan(bytes)) return NAN;
    if (bytes <= p[0].bytes) return p[0].read_ps;
    if (bytes >= p[n - 1].bytes) return p[n - 1].read_ps;
    size_t i = 1;
    while (i + 1 < n && p[i].bytes < bytes) i++;
    const double f = log(bytes / p[i - 1].bytes) / log(p[i].bytes / p[i - 1].bytes);
    return p[i - 1].read_ps + f * (p[i].read_ps - p[i - 1].read_ps);
}

/* Seconds of steps: what they took, what their bytes alone and their operations alone would take, and what is allowed. */
typedef struct {
    int64_t steps;
    double took, bytes, operations, allowed;
} peak_sum;

/* Without a peak, or without what a step declares, a sum is NaN, and so is all that is made of it. */
static void add_step(const dlab_run *r, const dlab_ev_step *s, peak_sum *sum)
{
    static const dlab_peak_row unknown = {NAN, NAN, NAN, NAN, NAN};
    const dlab_peak_row *p = r->n_peaks ? &r->peaks[0] : &unknown;
    const double bytes = s->bytes / bandwidth_at(r, s->bytes);
    const double others = s->flops - s->int8_flops - s->bf16_flops;
    const double operations = s->int8_flops / p->int8_ps + s->bf16_flops / p->bf16_ps + others / p->f32_ps;
    sum->steps++;
    sum->took += dlab_event_step_seconds(s);
    sum->bytes += bytes;
    sum->operations += operations;
    sum->allowed += isnan(bytes) || isnan(operations) ? NAN : fmax(bytes, operations);
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
