/* Requests that failed, and those that met the objectives which the run was given (measure.slo_ttft, slo_tpot, slo_e2e). */
#include <math.h>
#include <stdlib.h>

#include "base/param.h"
#include "results/events.h"

static double failures(const dlab_run *r)
{
    double n = 0;
    for (size_t i = 0; i < r->n_requests; i++) n += !dlab_event_served(&r->requests[i]);
    return n;
}

static void failed(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    *out = DLAB_METRIC_MISSING;
    if (r->n_requests > 0) *out = (dlab_metric_value){.value = failures(r), .n = (int64_t)r->n_requests};
}

static void failed_share(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    failed(r, w, out);
    out->value /= (double)r->n_requests;
}

/* Cut off by the end of the run: neither served to the end nor failed. */
static void unfinished(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    double n = 0;
    for (size_t i = 0; i < r->n_requests; i++)
        n += dlab_event_served(&r->requests[i]) && !isfinite(r->requests[i].t_done);
    *out = DLAB_METRIC_MISSING;
    if (r->n_requests > 0) *out = (dlab_metric_value){.value = n, .n = (int64_t)r->n_requests};
}

/* ns; infinite: none given */
typedef struct {
    double ttft, tpot, e2e;
} objectives;

static double objective(const dlab_run *r, const char *key)
{
    const dlab_param duration = {.key = key, .type = DLAB_PARAM_DURATION, .def = "0", .min = 1, .max = 0};
    const char *text = dlab_settings_get(&r->effective, key);
    int64_t ns = 0;
    if (!text || dlab_param_set(&duration, &ns, text, NULL) != DLAB_OK || ns <= 0) return INFINITY;
    return (double)ns;
}

static bool objectives_of(const dlab_run *r, objectives *out)
{
    *out = (objectives){objective(r, "measure.slo_ttft"), objective(r, "measure.slo_tpot"),
                        objective(r, "measure.slo_e2e")};
    return isfinite(out->ttft) || isfinite(out->tpot) || isfinite(out->e2e);
}

static int compare_paces(const void *a, const void *b)
{
    const dlab_request_pace *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Within every objective, the objective itself included. A request that has not ended, or has failed, misses; one of a single
 * token has no tpot to miss. */
static bool meets(const dlab_ev_request *q, const dlab_request_pace *paces, size_t n, const objectives *o)
{
    if (!dlab_event_served(q) || !isfinite(q->t_done)) return false;
    if (isfinite(o->ttft) && !(q->t_first - q->t_sched <= o->ttft)) return false;
    if (isfinite(o->e2e) && !(q->t_done - q->t_sched <= o->e2e)) return false;
    if (!isfinite(o->tpot) || q->new_tokens == 1) return true;
    const dlab_request_pace key = {.id = q->id};
    const dlab_request_pace *p = n ? bsearch(&key, paces, n, sizeof *paces, compare_paces) : NULL;
    return p && p->tpot <= o->tpot;
}

/* An objective of the tokens' pace, and a server that did not tell how many they were. */
static bool is_unknown(const dlab_run *r, const objectives *o)
{
    for (size_t i = 0; isfinite(o->tpot) && i < r->n_requests; i++)
        if (dlab_event_served(&r->requests[i]) && r->requests[i].new_tokens < 0) return true;
    return false;
}

/* How many of the run's requests do; NaN: no objective was given, there are no requests, or it is not known. */
static double good(const dlab_run *r)
{
    objectives o;
    size_t n = 0;
    double met = 0;
    if (r->n_requests == 0 || !objectives_of(r, &o) || is_unknown(r, &o)) return NAN;
    dlab_request_pace *paces = isfinite(o.tpot) ? dlab_events_paces(r, &DLAB_WINDOW_ALL, &n) : NULL;
    for (size_t i = 0; i < r->n_requests; i++) met += meets(&r->requests[i], paces, n, &o);
    free(paces);
    return met;
}

static void goodput(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const double ns = dlab_events_length_ns(r);
    *out = DLAB_METRIC_MISSING;
    if (ns > 0) *out = (dlab_metric_value){.value = good(r) / (ns * 1e-9), .n = (int64_t)r->n_requests};
}

static void goodput_share(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    *out = (dlab_metric_value){.value = good(r) / (double)r->n_requests, .n = (int64_t)r->n_requests};
}

static const dlab_metric metrics[] = {
    {"failed", "1", DLAB_LOWER_IS_BETTER, false, "requests that were not served: refused, timed out, broken, rejected",
     failed},
    {"failed_share", "1", DLAB_LOWER_IS_BETTER, false, "failed / requests", failed_share},
    {"unfinished", "1", DLAB_LOWER_IS_BETTER, false,
     "requests that had neither ended nor failed when the run ended; latencies that they had not reached leave them "
     "out",
     unfinished},
    {"goodput", "req/s", DLAB_HIGHER_IS_BETTER, false,
     "requests that met every objective of measure.slo_* / the whole run; missing without one", goodput},
    {"goodput_share", "1", DLAB_HIGHER_IS_BETTER, false,
     "requests that met every objective of measure.slo_* / requests; missing without one", goodput_share},
};

const dlab_metric_family dlab_metrics_goodput = {metrics, sizeof metrics / sizeof *metrics};
