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
    if (ns > 0 && count > 0) *out = (dlab_metric_value){.value = count / (ns * 1e-9), .n = (int64_t)count};
}

static void out_tps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    per_second(r, (double)r->n_tokens, out);
}

static void total_tps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double tokens = (double)r->n_tokens;
    for (size_t i = 0; i < r->n_requests; i++)
        if (isfinite(r->requests[i].t_first)) tokens += (double)r->requests[i].prompt_tokens;
    per_second(r, tokens, out);
}

static void req_ps(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double done = 0;
    for (size_t i = 0; i < r->n_requests; i++) done += isfinite(r->requests[i].t_done) ? 1 : 0;
    per_second(r, done, out);
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
    {"out_tps", "tok/s", DLAB_HIGHER_IS_BETTER, false, "output tokens / the whole run (window full)", out_tps},
    {"total_tps", "tok/s", DLAB_HIGHER_IS_BETTER, false, "prompt and output tokens / the whole run (window full)",
     total_tps},
    {"req_ps", "req/s", DLAB_HIGHER_IS_BETTER, false, "finished requests / the whole run (window full)", req_ps},
};

const dlab_metric_family dlab_metrics_throughput = {metrics, sizeof metrics / sizeof *metrics};
