/* Times of requests and of tokens: ttft, queue, tpot, itl, e2e. Of served requests: what failed has no latency. */
#include <math.h>
#include <stdlib.h>

#include "results/events.h"

/* Puts one value a request (or a gap) into x, of which the caller owns *n values; NULL when there are none. */
typedef double *(*collect_fn)(const dlab_run *r, const dlab_metric_window *w, size_t *n);

#define COLLECT_REQUESTS(name, expression)                                                                             \
    static double *collect_##name(const dlab_run *r, const dlab_metric_window *w, size_t *n)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        double *x = r->n_requests ? malloc(r->n_requests * sizeof *x) : NULL;                                          \
        *n = 0;                                                                                                        \
        for (size_t i = 0; x && i < r->n_requests; i++) {                                                              \
            const dlab_ev_request *q = &r->requests[i];                                                                \
            if (dlab_event_served(q)) x[(*n)++] = (expression);                                                        \
        }                                                                                                              \
        return x;                                                                                                      \
    }

COLLECT_REQUESTS(ttft, q->t_first - q->t_sched)
COLLECT_REQUESTS(ttft_client, q->t_first - q->t_submit)
COLLECT_REQUESTS(queue, q->t_admit - q->t_sched)
COLLECT_REQUESTS(ttft_service, q->t_first - q->t_admit)
COLLECT_REQUESTS(e2e, q->t_done - q->t_sched)
COLLECT_REQUESTS(norm_latency, q->new_tokens > 0 ? (q->t_done - q->t_sched) / (double)q->new_tokens : NAN)

/* One value a request with at least two tokens in the window. What was produced counts, not what was asked for. */
static double *collect_tpot(const dlab_run *r, const dlab_metric_window *w, size_t *n)
{
    size_t n_paces;
    dlab_request_pace *p = dlab_events_paces(r, w, &n_paces);
    double *x = p ? malloc((n_paces + 1) * sizeof *x) : NULL;
    *n = 0;
    for (size_t i = 0; x && i < n_paces; i++)
        if (isfinite(p[i].tpot)) x[(*n)++] = p[i].tpot;
    free(p);
    return x;
}

/* Tokens of one request that came at one time are one flush: k of them share the gap before it evenly, so that there are as
 * many gaps as tokens after the first. Those that came along with the first had to wait for nothing. */
static double *collect_itl(const dlab_run *r, const dlab_metric_window *w, size_t *n)
{
    size_t n_tokens, end;
    dlab_ev_token *t = dlab_events_tokens(r, &DLAB_WINDOW_ALL, false, &n_tokens);
    double *x = t ? malloc((n_tokens + 1) * sizeof *x) : NULL;
    *n = 0;
    for (size_t i = 0; x && i < n_tokens; i = end) {
        const bool first = i == 0 || t[i - 1].request != t[i].request;
        for (end = i + 1; end < n_tokens && t[end].request == t[i].request && t[end].t == t[i].t;) end++;
        const double gap = first ? 0 : (t[i].t - t[i - 1].t) / (double)(end - i);
        for (size_t k = i + first; k < end; k++)
            if ((int64_t)t[k].index - t[k - 1].index == 1 && dlab_event_in_window(&t[k], w) &&
                dlab_event_in_window(&t[k - 1], w))
                x[(*n)++] = gap;
    }
    free(t);
    return x;
}

static void mean_of(collect_fn collect, const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    size_t n;
    double *x = collect(r, w, &n);
    dlab_events_mean(x, n, out);
    free(x);
}

static void quantile_of(collect_fn collect, double q, const dlab_run *r, const dlab_metric_window *w,
                        dlab_metric_value *out)
{
    size_t n;
    double *x = collect(r, w, &n);
    dlab_events_quantile(x, n, q, out);
    free(x);
}

#define MEAN(name, from)                                                                                               \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        mean_of(collect_##from, r, w, out);                                                                            \
    }
#define QUANTILE(name, from, q)                                                                                        \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        quantile_of(collect_##from, q, r, w, out);                                                                     \
    }
#define MEAN_AND_QUANTILES(name)                                                                                       \
    MEAN(name, name)                                                                                                   \
    QUANTILE(name##_p50, name, 0.50)                                                                                   \
    QUANTILE(name##_p90, name, 0.90)                                                                                   \
    QUANTILE(name##_p99, name, 0.99)

MEAN_AND_QUANTILES(ttft)
MEAN_AND_QUANTILES(ttft_client)
MEAN_AND_QUANTILES(queue)
MEAN_AND_QUANTILES(ttft_service)
MEAN_AND_QUANTILES(tpot)
MEAN_AND_QUANTILES(itl)
QUANTILE(itl_max, itl, 1.0)
MEAN_AND_QUANTILES(e2e)
MEAN_AND_QUANTILES(norm_latency)

/* A served request with fewer than two tokens has no tpot. It is counted here, so that it does not vanish. */
static void tpot_missing(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    size_t n, n_requests = 0;
    for (size_t i = 0; i < r->n_requests; i++)
        n_requests += dlab_event_served(&r->requests[i]) && r->requests[i].id >= w->first_request &&
                      r->requests[i].id <= w->last_request;
    if (n_requests == 0) return;
    double *x = collect_tpot(r, w, &n);
    free(x);
    *out = (dlab_metric_value){.value = (double)n_requests - (double)n, .n = (int64_t)n_requests};
}

#define ROW(name, windowed, text)                                                                                      \
    {                                                                                                                  \
        "" #name, "ns", DLAB_LOWER_IS_BETTER, windowed, text, name                                                     \
    }
#define QUANTILE_ROWS(name, windowed, of)                                                                              \
    ROW(name##_p50, windowed, "median " of), ROW(name##_p90, windowed, "90th percentile of the " of),                  \
        ROW(name##_p99, windowed, "99th percentile of the " of)

static const dlab_metric metrics[] = {
    ROW(ttft, false, "time to first token, t_first - t_sched, mean over requests"),
    QUANTILE_ROWS(ttft, false, "time to first token over requests"),
    ROW(ttft_client, false, "t_first - t_submit, as a client sees it, mean over requests"),
    QUANTILE_ROWS(ttft_client, false, "time to first token from submission on over requests"),
    ROW(queue, false, "t_admit - t_sched, mean over requests"),
    QUANTILE_ROWS(queue, false, "time from schedule to admission over requests"),
    ROW(ttft_service, false, "t_first - t_admit, mean over requests"),
    QUANTILE_ROWS(ttft_service, false, "time from admission to first token over requests"),
    ROW(tpot, true,
        "time per output token after the first, (t_last - t_first)/(n - 1), mean over requests; n < 2 missing"),
    QUANTILE_ROWS(tpot, true, "time per output token over requests"),
    {"tpot_missing", "1", DLAB_LOWER_IS_BETTER, true, "served requests with fewer than two tokens, which have no tpot",
     tpot_missing},
    ROW(itl, true,
        "gap between successive tokens, pooled over requests, the first token excluded, a flush of k shared by k, "
        "mean"),
    QUANTILE_ROWS(itl, true, "gap between successive tokens"),
    ROW(itl_max, true, "longest gap between successive tokens"),
    ROW(e2e, false, "t_done - t_sched, mean over finished requests"),
    QUANTILE_ROWS(e2e, false, "time from schedule to end over finished requests"),
    ROW(norm_latency, false, "e2e / n of a finished request, the first token's wait included, mean"),
    QUANTILE_ROWS(norm_latency, false, "e2e / n over finished requests"),
};

const dlab_metric_family dlab_metrics_latency = {metrics, sizeof metrics / sizeof *metrics};
