/* The load: what was intended and what was delivered, how many requests were in flight, and the rates while they were. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/events.h"

/* ---- intended and delivered ----------------------------------------------------------------------------------------- */

static bool is_kind(const dlab_run *r, const char *kind)
{
    const char *own = dlab_settings_get(&r->effective, "workload.kind");
    return own && strcmp(own, kind) == 0;
}

/* A schedule of its own, which the target cannot slow down: only there a rate is intended. */
static bool is_scheduled(const dlab_run *r) { return is_kind(r, "open") || is_kind(r, "trace"); }

/* One that was submitted, and was due by the schedule: later turns of a conversation are due when their predecessor has
 * ended. */
static bool is_due(const dlab_ev_request *q) { return q->turn == 0 && isfinite(q->t_sched) && isfinite(q->t_submit); }

/* `later` came after the first instant, so that later ÷ span is the rate whatever came at once. Both spans begin there: what
 * was sent late, however fast, was not sent at a higher rate. */
typedef struct {
    double later, sched_s, submit_s;
} delivery_spans;

static delivery_spans spans_of(const dlab_run *r)
{
    double from = INFINITY, to = -INFINITY, sent_to = -INFINITY, later = 0;
    for (int pass = 0; is_scheduled(r) && pass < 2; pass++) {
        for (size_t i = 0; i < r->n_requests; i++) {
            const dlab_ev_request *q = &r->requests[i];
            if (!is_due(q)) continue;
            later += pass == 1 && q->t_sched > from;
            from = fmin(from, q->t_sched);
            to = fmax(to, q->t_sched);
            sent_to = fmax(sent_to, q->t_submit);
        }
    }
    return (delivery_spans){later, (to - from) * 1e-9, (sent_to - from) * 1e-9};
}

static void rate_of(const delivery_spans *s, double seconds, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    if (s->later > 0 && seconds > 0) *out = (dlab_metric_value){.value = s->later / seconds, .n = (int64_t)s->later};
}

static void rate_intended(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const delivery_spans s = spans_of(r);
    rate_of(&s, s.sched_s, out);
}

static void rate_achieved(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const delivery_spans s = spans_of(r);
    rate_of(&s, s.submit_s, out);
}

static void delivery(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const delivery_spans s = spans_of(r);
    *out = DLAB_METRIC_MISSING;
    if (s.later > 0 && s.sched_s > 0 && s.submit_s > 0)
        *out = (dlab_metric_value){.value = s.sched_s / s.submit_s, .n = (int64_t)s.later};
}

#define GROWTH_MIN_N 5 /* of fewer points a line's error says little */

/* The lag of the last request alone decides `delivery`, and chance decides that lag. So this is the slope of a line through
 * all of them, less three standard errors. */
static void lag_growth(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
    *out = DLAB_METRIC_MISSING;
    for (int pass = 0; is_scheduled(r) && pass < 2; pass++) {
        const double mean_x = n > 0 ? x / n : 0, mean_y = n > 0 ? y / n : 0; /* known in the second pass */
        for (size_t i = 0; i < r->n_requests; i++) {
            const dlab_ev_request *q = &r->requests[i];
            if (!is_due(q)) continue;
            const double at = q->t_sched - mean_x, late = q->t_submit - q->t_sched - mean_y;
            n += pass == 0;
            x += pass == 0 ? at : 0;
            y += pass == 0 ? late : 0;
            xx += pass == 1 ? at * at : 0;
            xy += pass == 1 ? at * late : 0;
            yy += pass == 1 ? late * late : 0;
        }
    }
    if (n < GROWTH_MIN_N || !(xx > 0)) return;
    const double slope = xy / xx, error = sqrt(fmax(0, yy - slope * xy) / (n - 2) / xx);
    *out = (dlab_metric_value){.value = fmax(0, slope - 3 * error), .n = (int64_t)n};
}

/* One value a request that was handed over. The caller owns it. */
static double *lags_of(const dlab_run *r, size_t *n)
{
    double *x = is_scheduled(r) && r->n_requests ? malloc(r->n_requests * sizeof *x) : NULL;
    *n = 0;
    for (size_t i = 0; x && i < r->n_requests; i++) x[(*n)++] = r->requests[i].t_submit - r->requests[i].t_sched;
    return x;
}

static void lag(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    size_t n;
    double *x = lags_of(r, &n);
    dlab_events_mean(x, n, out);
    free(x);
}

#define LAG(name, q)                                                                                                   \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        size_t n;                                                                                                      \
        double *x = lags_of(r, &n);                                                                                    \
        dlab_events_quantile(x, n, q, out);                                                                            \
        free(x);                                                                                                       \
    }
LAG(lag_p50, 0.50)
LAG(lag_p99, 0.99)
LAG(lag_max, 1.0)

/* ---- in flight ------------------------------------------------------------------------------------------------------ */

/* From t on, until the next one's t, so many requests are in flight. */
typedef struct {
    double t;
    int64_t level;
} flight;

static int compare_flights(const void *a, const void *b)
{
    const flight *x = a, *y = b;
    return (x->t > y->t) - (x->t < y->t);
}

/* A request is in flight from its submission on. One that was to follow another at once, in a closed load or as a turn of a
 * conversation, is from the moment when it could be sent: the instant between is no fall of the load. */
static double begin_of(bool closed, const dlab_ev_request *q)
{
    const bool follows = closed || q->turn > 0;
    return follows && isfinite(q->t_submit) && q->t_sched <= q->t_submit ? q->t_sched : q->t_submit;
}

/* Ascending, one entry a moment at which the level changes, the last of level 0. malloc'd; NULL: nothing was submitted. */
static flight *flights_of(const dlab_run *r, size_t *n)
{
    const double end = dlab_events_length_ns(r);
    const bool closed = is_kind(r, "closed");
    flight *x = r->n_requests ? malloc(2 * r->n_requests * sizeof *x) : NULL;
    size_t k = 0;
    int64_t level = 0;
    *n = 0;
    for (size_t i = 0; x && i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        const double from = begin_of(closed, q), to = isfinite(q->t_done) ? q->t_done : end;
        if (!isfinite(from) || !(to > from)) continue;
        x[k++] = (flight){from, 1};
        x[k++] = (flight){to, -1};
    }
    if (k > 1) qsort(x, k, sizeof *x, compare_flights);
    for (size_t i = 0; i < k; i++) {
        level += x[i].level;
        if (i + 1 == k || x[i + 1].t > x[i].t) x[(*n)++] = (flight){x[i].t, level};
    }
    if (*n > 0) return x;
    free(x);
    return NULL;
}

static int64_t peak_of(const flight *x, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i].level > most) most = x[i].level;
    return most;
}

static void concurrency(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    size_t n;
    double busy = 0;
    const double length = dlab_events_length_ns(r);
    flight *x = flights_of(r, &n);
    *out = DLAB_METRIC_MISSING;
    for (size_t i = 0; i + 1 < n; i++) busy += (double)x[i].level * (x[i + 1].t - x[i].t);
    if (x && length > 0) *out = (dlab_metric_value){.value = busy / length, .n = (int64_t)r->n_requests};
    free(x);
}

static void concurrency_peak(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    size_t n;
    flight *x = flights_of(r, &n);
    *out = DLAB_METRIC_MISSING;
    if (x) *out = (dlab_metric_value){.value = (double)peak_of(x, n), .n = (int64_t)r->n_requests};
    free(x);
}

/* ---- the steady window ---------------------------------------------------------------------------------------------- */

#define STEADY_SHARE 0.9 /* of the peak */

typedef struct {
    double from, to; /* ns; NaN: there is none */
} span;

/* The longest time in which the level never falls below its share of the peak; of equals the first. */
static span steady_of(const dlab_run *r)
{
    size_t n;
    span best = {NAN, NAN};
    flight *x = flights_of(r, &n);
    const double least = x ? STEADY_SHARE * (double)peak_of(x, n) : 0;
    for (size_t i = 0, end; x && i < n; i = end) {
        for (end = i; end < n && (double)x[end].level >= least;) end++;
        if (end > i && end < n && !(x[end].t - x[i].t <= best.to - best.from)) best = (span){x[i].t, x[end].t};
        if (end == i) end++;
    }
    free(x);
    return best;
}

static void per_steady_second(const span *s, double count, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    if (s->to > s->from && !isnan(count))
        *out = (dlab_metric_value){.value = count / ((s->to - s->from) * 1e-9), .n = (int64_t)count};
}

/* What comes at the very end of the window was made in it; what comes at its begin was not. */
static void out_tps_steady(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    size_t n;
    const span s = steady_of(r);
    double count = 0;
    dlab_output *x = dlab_events_output(r, &n);
    for (size_t i = 0; x && i < n; i++) count += x[i].t > s.from && x[i].t <= s.to ? x[i].tokens : 0;
    per_steady_second(&s, count, out);
    free(x);
}

static void req_ps_steady(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const span s = steady_of(r);
    double count = 0;
    for (size_t i = 0; i < r->n_requests; i++) {
        const dlab_ev_request *q = &r->requests[i];
        count += dlab_event_served(q) && q->t_done > s.from && q->t_done <= s.to;
    }
    per_steady_second(&s, count, out);
}

static void steady_share(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const span s = steady_of(r);
    const double length = dlab_events_length_ns(r);
    *out = DLAB_METRIC_MISSING;
    if (s.to > s.from && length > 0) *out = (dlab_metric_value){.value = (s.to - s.from) / length, .n = 1};
}

static const dlab_metric metrics[] = {
    {"rate_intended", "req/s", DLAB_NEITHER, false,
     "requests after the first / time from the first to the last as scheduled; open loads and traces only",
     rate_intended},
    {"rate_achieved", "req/s", DLAB_NEITHER, false,
     "the same requests / time from the first as scheduled to the last as submitted", rate_achieved},
    {"delivery", "1", DLAB_HIGHER_IS_BETTER, false, "rate_achieved / rate_intended", delivery},
    {"lag_growth", "1", DLAB_LOWER_IS_BETTER, false,
     "slope of a line through lag over t_sched, less three standard errors, at least 0; missing under 5 requests",
     lag_growth},
    {"lag", "ns", DLAB_LOWER_IS_BETTER, false, "t_submit - t_sched, mean over requests; open loads and traces only",
     lag},
    {"lag_p50", "ns", DLAB_LOWER_IS_BETTER, false, "median of the lag over requests", lag_p50},
    {"lag_p99", "ns", DLAB_LOWER_IS_BETTER, false, "99th percentile of the lag over requests", lag_p99},
    {"lag_max", "ns", DLAB_LOWER_IS_BETTER, false, "longest lag of a request", lag_max},
    {"concurrency", "1", DLAB_NEITHER, false, "requests between submission and end, mean over the run's time",
     concurrency},
    {"concurrency_peak", "1", DLAB_NEITHER, false, "most requests between submission and end at one time",
     concurrency_peak},
    {"out_tps_steady", "tok/s", DLAB_HIGHER_IS_BETTER, false,
     "output tokens of served requests / the longest time with 90 % of concurrency_peak or more (window steady)",
     out_tps_steady},
    {"req_ps_steady", "req/s", DLAB_HIGHER_IS_BETTER, false, "requests served in the window steady / its length",
     req_ps_steady},
    {"steady_share", "1", DLAB_NEITHER, false, "the window steady / the whole run", steady_share},
};

const dlab_metric_family dlab_metrics_load = {metrics, sizeof metrics / sizeof *metrics};
