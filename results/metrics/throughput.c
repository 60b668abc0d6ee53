/* Tokens and requests a second. Phases are kept apart: a step that mixes prompt and decode work counts for neither. */
#include <math.h>
#include <stdlib.h>

#include "results/events.h"

/* Above this share of mixed steps a rate of one phase would describe a part of the run only. */
static const double mixed_share_max = 0.05;

typedef enum { SHARE, PREFILL, DECODE } phase_figure;

static void phase(const dlab_run *r, const dlab_metric_window *w, phase_figure which, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    dlab_step_facts *facts = dlab_events_steps(r, w);
    if (!facts) return;
    double share = dlab_events_mixed_share(r, facts);
    if (which == SHARE) {
        *out = (dlab_metric_value){.value = share, .n = (int64_t)r->n_steps};
    } else if (share <= mixed_share_max) {
        dlab_step_sum s = dlab_events_sum(r, facts, which == PREFILL ? DLAB_STEP_PREFILL : DLAB_STEP_DECODE);
        int64_t tokens = which == PREFILL ? s.prefill_rows : s.later_tokens;
        if (s.seconds > 0 && tokens > 0) *out = (dlab_metric_value){.value = (double)tokens / s.seconds, .n = tokens};
    }
    free(facts);
}

static void prefill_tps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w; /* prompts have no token index */
    phase(r, &DLAB_WINDOW_ALL, PREFILL, out);
}

static void decode_tps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    phase(r, w, DECODE, out);
}

static void mixed_share(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    phase(r, w, SHARE, out);
}

static void per_second(const dlab_run *r, double count, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    double ns = dlab_events_length_ns(r);
    if (ns > 0 && r->n_requests > 0 && !isnan(count))
        *out = (dlab_metric_value){.value = count / (ns * 1e-9), .n = (int64_t)count};
}

/* What was served, at most. The time is that of the whole run, whatever failed in it. */
typedef struct {
    double requests, out, total; /* finished; tokens produced; those and the prompts' that led to a token */
} served_sum;

static served_sum sum_of(const dlab_run *r)
{
    served_sum s = {0};
    for (size_t i = 0; i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        if (!dlab_event_served(q)) continue;
        const double made = q->new_tokens >= 0 ? (double)q->new_tokens : NAN; /* a server that does not tell */
        s.requests += isfinite(q->t_done) ? 1 : 0;
        s.out += made;
        s.total += made + (isfinite(q->t_first) && q->prompt_tokens > 0 ? (double)q->prompt_tokens : 0);
    }
    return s;
}

static void out_tps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    per_second(r, sum_of(r).out, out);
}

static void total_tps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    per_second(r, sum_of(r).total, out);
}

static void req_ps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    per_second(r, sum_of(r).requests, out);
}

#define SECOND_NS 1e9

/* Windows (t − 1 s, t], t being a token's time, that lie in the run. Near the run's ends fewer windows have a token than
 * elsewhere, so that none of them need reach the mean; a peak below the mean would be none. */
static void out_tps_peak(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    size_t n;
    dlab_output *x = dlab_events_output(r, &n);
    double most = 0, inside = 0;
    out_tps(r, w, out);
    for (size_t i = 0, from = 0; x && i < n; i++) {
        inside += x[i].tokens;
        while (x[i].t > SECOND_NS && x[from].t <= x[i].t - SECOND_NS) inside -= x[from++].tokens;
        most = fmax(most, inside);
    }
    if (dlab_events_length_ns(r) >= SECOND_NS && most > out->value) out->value = most;
    free(x);
}

static const dlab_metric metrics[] = {
    {"prefill_tps", "tok/s", DLAB_HIGHER_IS_BETTER, false,
     "uncached prompt tokens / time of pure prefill steps; missing when mixed steps take over 5 % of the time",
     prefill_tps},
    {"decode_tps", "tok/s", DLAB_HIGHER_IS_BETTER, true,
     "tokens after the first / time of pure decode steps; missing when mixed steps take over 5 % of the time",
     decode_tps},
    {"mixed_share", "1", DLAB_NEITHER, false, "time of steps that mix prompt and decode work / time of all steps",
     mixed_share},
    {"out_tps", "tok/s", DLAB_HIGHER_IS_BETTER, false, "output tokens of served requests / the whole run (window full)",
     out_tps},
    {"out_tps_peak", "tok/s", DLAB_HIGHER_IS_BETTER, false,
     "most output tokens in any second of the run; of a run under a second its out_tps, and never less than that",
     out_tps_peak},
    {"total_tps", "tok/s", DLAB_HIGHER_IS_BETTER, false,
     "prompt and output tokens of served requests / the whole run (window full)", total_tps},
    {"req_ps", "req/s", DLAB_HIGHER_IS_BETTER, false,
     "finished requests that were served / the whole run (window full)", req_ps},
};

const dlab_metric_family dlab_metrics_throughput = {metrics, sizeof metrics / sizeof *metrics};
