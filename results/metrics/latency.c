/* Times of requests and of tokens: ttft, queue, tpot, itl, e2e. */
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
        *n = x ? r->n_requests : 0;                                                                                    \
        for (size_t i = 0; i < *n; i++) {                                                                              \
            const dlab_ev_request *q = &r->requests[i];                                                                \
            x[i] = (expression);                                                                                       \
        }                                                                                                              \
        return x;                                                                                                      \
    }

COLLECT_REQUESTS(ttft, q->t_first - q->t_sched)
COLLECT_REQUESTS(ttft_client, q->t_first - q->t_submit)
COLLECT_REQUESTS(queue, q->t_admit - q->t_sched)
COLLECT_REQUESTS(ttft_service, q->t_first - q->t_admit)
COLLECT_REQUESTS(e2e, q->t_done - q->t_sched)

/* One value a request with at least two tokens in the window: time between the first and the last of them ÷ the tokens
 * made in between. What was produced counts, not what was asked for. */
static double *collect_tpot(const dlab_run *r, const dlab_metric_window *w, size_t *n)
{
    size_t n_tokens;
    dlab_ev_token *t = dlab_events_tokens(r, w, &n_tokens);
    double *x = t ? malloc(n_tokens * sizeof *x) : NULL;
    *n = 0;
    for (size_t i = 0, j; x && i < n_tokens; i = j) {
        for (j = i + 1; j < n_tokens && t[j].request == t[i].request;) j++;
        int64_t made = (int64_t)t[j - 1].index - t[i].index;
        if (made > 0) x[(*n)++] = (t[j - 1].t - t[i].t) / (double)made;
    }
    free(t);
    return x;
}

static double *collect_itl(const dlab_run *r, const dlab_metric_window *w, size_t *n)
{
    size_t n_tokens;
    dlab_ev_token *t = dlab_events_tokens(r, w, &n_tokens);
    double *x = t ? malloc(n_tokens * sizeof *x) : NULL;
    *n = 0;
    for (size_t i = 1; x && i < n_tokens; i++)
        if (t[i].request == t[i - 1].request && (int64_t)t[i].index - t[i - 1].index == 1)
            x[(*n)++] = t[i].t - t[i - 1].t;
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
MEAN(ttft_client, ttft_client)
MEAN(queue, queue)
MEAN(ttft_service, ttft_service)
MEAN_AND_QUANTILES(tpot)
MEAN_AND_QUANTILES(itl)
QUANTILE(itl_max, itl, 1.0)
MEAN_AND_QUANTILES(e2e)

/* A request with fewer than two tokens has no tpot. It is counted here, so that it does not vanish. */
static void tpot_missing(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    *out = DLAB_METRIC_MISSING;
    size_t n, n_requests = 0;
    for (size_t i = 0; i < r->n_requests; i++)
        n_requests += r->requests[i].id >= w->first_request && r->requests[i].id <= w->last_request;
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
    ROW(queue, false, "t_admit - t_sched, mean over requests"),
    ROW(ttft_service, false, "t_first - t_admit, mean over requests"),
    ROW(tpot, true,
        "time per output token after the first, (t_last - t_first)/(n - 1), mean over requests; n < 2 missing"),
    QUANTILE_ROWS(tpot, true, "time per output token over requests"),
    {"tpot_missing", "1", DLAB_LOWER_IS_BETTER, true, "requests with fewer than two tokens, which have no tpot",
     tpot_missing},
    ROW(itl, true, "gap between successive tokens, pooled over requests, the first token excluded, mean"),
    QUANTILE_ROWS(itl, true, "gap between successive tokens"),
    ROW(itl_max, true, "longest gap between successive tokens"),
    ROW(e2e, false, "t_done - t_sched, mean over finished requests"),
    QUANTILE_ROWS(e2e, false, "time from schedule to end over finished requests"),
};

const dlab_metric_family dlab_metrics_latency = {metrics, sizeof metrics / sizeof *metrics};
