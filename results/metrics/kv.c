/* The KV store: how its bytes are divided over time, what the formula says, what upkeep and sharing did. */
#include <math.h>
#include <stdlib.h>

#include "results/events.h"

/* ---- means over the steps, weighted by their length ----------------------------------------------------------------- */

typedef struct {
    double reserved, used, cached, free, unusable, shared; /* NaN: a step does not know */
} kv_means;

static double known(int64_t bytes) { return bytes >= 0 ? (double)bytes : NAN; }

/* A step of no length (a clock too coarse) counts as a nanosecond. */
static kv_means means_of(const dlab_run *r)
{
    kv_means m = {0};
    double weights = 0;
    for (size_t i = 0; i < r->n_steps; i++) weights += fmax(dlab_event_step_seconds(&r->steps[i]), 1e-9);
    if (r->n_steps == 0) return (kv_means){NAN, NAN, NAN, NAN, NAN, NAN};
    for (size_t i = 0; i < r->n_steps; i++) {
        const dlab_ev_step *s = &r->steps[i];
        double weight = fmax(dlab_event_step_seconds(s), 1e-9) / weights;
        m.reserved += weight * known(s->kv_reserved);
        m.used += weight * known(s->kv_used);
        m.cached += weight * known(s->kv_cached);
        m.free += weight * known(s->kv_free);
        m.unusable += weight * known(s->kv_unusable);
        m.shared += weight * known(s->kv_shared);
    }
    return m;
}

#define MEAN(name, expression)                                                                                         \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        const kv_means m = means_of(r);                                                                                \
        *out = (dlab_metric_value){.value = (expression), .n = (int64_t)r->n_steps};                                   \
    }
MEAN(kv_reserved, m.reserved)
MEAN(kv_used, m.used)
MEAN(kv_waste, m.reserved - m.used)
MEAN(kv_free, m.free)
MEAN(kv_cached, m.cached)
MEAN(kv_shared, m.shared)
MEAN(kv_util, m.reserved > 0 ? m.used / m.reserved : NAN)
MEAN(kv_frag, m.free > 0 ? m.unusable / m.free : NAN)

/* While prompts wait for their turn, what they reserved is empty in any store; the fullest step has all of them in. */
static void kv_util_full(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    const dlab_ev_step *full = NULL;
    for (size_t i = 0; i < r->n_steps; i++) {
        if (!full || r->steps[i].kv_used > full->kv_used) full = &r->steps[i];
    }
    *out = DLAB_METRIC_MISSING;
    if (!full || full->kv_used < 0 || full->kv_reserved <= 0) return;
    *out = (dlab_metric_value){.value = (double)full->kv_used / (double)full->kv_reserved, .n = 1};
}

/* ---- facts of the run ----------------------------------------------------------------------------------------------- */

#define FACT(name)                                                                                                     \
    static void name(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)                           \
    {                                                                                                                  \
        (void)w;                                                                                                       \
        *out = DLAB_METRIC_MISSING;                                                                                    \
        if (r->name >= 0) *out = (dlab_metric_value){.value = (double)r->name, .n = 1};                                \
    }
FACT(kv_pool)
FACT(kv_growths)
FACT(kv_growth_ns)
FACT(kv_evictions)
FACT(kv_copies)
FACT(kv_cached_start)

static void kv_hit(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    *out = DLAB_METRIC_MISSING;
    if (r->kv_asked_tokens > 0 && r->kv_hit_tokens >= 0)
        *out = (dlab_metric_value){.value = (double)r->kv_hit_tokens / (double)r->kv_asked_tokens,
                                   .n = r->kv_asked_tokens};
}

static void kv_hit_ideal(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    *out = (dlab_metric_value){.value = r->kv_hit_ideal, .n = isfinite(r->kv_hit_ideal) ? 1 : 0};
}

static void kv_occupancy(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    int64_t peak = r->pool_peak[DLAB_POOL_KV];
    *out = DLAB_METRIC_MISSING;
    if (r->memory_limit > 0 && peak >= 0)
        *out = (dlab_metric_value){.value = (double)peak / (double)r->memory_limit, .n = 1};
}

/* ---- K4's formula at the fullest moment ----------------------------------------------------------------------------- */

/* What a token, or a request's end, adds to the tokens that are live. */
typedef struct {
    double t;
    int64_t tokens;
} change;

/* Ends come after the tokens of their moment: a request holds its place through the step that ends it. */
static int compare_changes(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->t != y->t) return x->t < y->t ? -1 : 1;
    return (x->tokens < y->tokens) - (x->tokens > y->tokens);
}

static int compare_requests(const void *a, const void *b)
{
    const dlab_ev_request *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Of one request's tokens t [n], in order; at most n + 1 changes. */
static size_t changes_of(const dlab_ev_request *q, const dlab_ev_token *t, size_t n, change *out)
{
    int64_t live = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t now = q->depth_tokens + q->prompt_tokens + t[i].index; /* the token itself is not fed back yet */
        out[k++] = (change){t[i].t, now - live};
        live = now;
    }
    if (isfinite(q->t_done)) out[k++] = (change){q->t_done, -live};
    return k;
}

/* The largest sum of tokens that are live at one time; −1: unknown. */
static int64_t most_live(const dlab_run *r)
{
    size_t n = 0, k = 0;
    int64_t live = 0, most = -1;
    dlab_ev_token *t = dlab_events_tokens(r, &DLAB_WINDOW_ALL, true, &n);
    dlab_ev_request *q = t ? malloc((r->n_requests + 1) * sizeof *q) : NULL;
    change *changes = q ? malloc((n + r->n_requests + 1) * sizeof *changes) : NULL;
    if (!changes || r->n_requests == 0) goto done;
    for (size_t i = 0; i < r->n_requests; i++) q[i] = r->requests[i];
    qsort(q, r->n_requests, sizeof *q, compare_requests);
    for (size_t i = 0, at = 0; i < r->n_requests; i++) {
        size_t from;
        if (q[i].depth_tokens < 0) goto done;
        while (at < n && t[at].request < q[i].id) at++;
        for (from = at; at < n && t[at].request == q[i].id;) at++;
        if (at > from) k += changes_of(&q[i], t + from, at - from, changes + k);
    }
    if (k > 1) qsort(changes, k, sizeof *changes, compare_changes);
    for (size_t i = 0; i < k; i++) {
        live += changes[i].tokens;
        if (live > most) most = live;
    }
done:
    free(changes);
    free(q);
    free(t);
    return most;
}

static void kv_formula(const dlab_run *r, const dlab_metric_window *w, dlab_metric_value *out)
{
    (void)w;
    *out = DLAB_METRIC_MISSING;
    if (!isfinite(r->kv_token_bytes)) return;
    int64_t tokens = most_live(r);
    if (tokens >= 0) *out = (dlab_metric_value){.value = r->kv_token_bytes * (double)tokens, .n = 1};
}

/* ---- the table ------------------------------------------------------------------------------------------------------ */

static const dlab_metric metrics[] = {
    {"kv_reserved", "B", DLAB_LOWER_IS_BETTER, false,
     "bytes of KV memory assigned to live sequences, mean over the steps' time", kv_reserved},
    {"kv_used", "B", DLAB_LOWER_IS_BETTER, false, "bytes of KV memory that hold live tokens, mean over the steps' time",
     kv_used},
    {"kv_util", "1", DLAB_HIGHER_IS_BETTER, false, "kv_used / kv_reserved", kv_util},
    {"kv_util_full", "1", DLAB_HIGHER_IS_BETTER, false, "kv_used / kv_reserved in the step that held the most tokens",
     kv_util_full},
    {"kv_waste", "B", DLAB_LOWER_IS_BETTER, false, "kv_reserved - kv_used: bytes wasted inside blocks and reservations",
     kv_waste},
    {"kv_free", "B", DLAB_NEITHER, false,
     "bytes of the store assigned to no sequence and kept for none, mean over the steps' time", kv_free},
    {"kv_frag", "1", DLAB_LOWER_IS_BETTER, false, "share of the free bytes that no sequence can ever be given",
     kv_frag},
    {"kv_cached", "B", DLAB_NEITHER, false,
     "bytes kept as prefixes that later sequences may share, mean over the steps' time", kv_cached},
    {"kv_shared", "B", DLAB_HIGHER_IS_BETTER, false, "bytes saved by sharing, mean over the steps' time", kv_shared},
    {"kv_hit", "1", DLAB_HIGHER_IS_BETTER, false,
     "tokens found in the prefix cache / tokens looked for; missing without one", kv_hit},
    {"kv_hit_ideal", "1", DLAB_NEITHER, false,
     "tokens of the prompts with which an earlier prompt began / all of them: what a cache that forgets nothing finds",
     kv_hit_ideal},
    {"cache_start", "B", DLAB_NEITHER, false, "bytes kept as prefixes when the run began; 0: the cache was cold",
     kv_cached_start},
    {"kv_pool", "B", DLAB_LOWER_IS_BETTER, false, "largest size of the KV store itself", kv_pool},
    {"kv_formula", "B", DLAB_LOWER_IS_BETTER, false,
     "K4: bytes of a token by the formula x tokens live at the fullest moment, nothing shared", kv_formula},
    {"kv_occupancy", "1", DLAB_LOWER_IS_BETTER, false,
     "K8: high-water mark of the KV pool / memory_limit; missing without a limit", kv_occupancy},
    {"kv_growths", "1", DLAB_LOWER_IS_BETTER, false, "reallocations of the KV store", kv_growths},
    {"kv_growth_time", "ns", DLAB_LOWER_IS_BETTER, false, "time that they took, copies included", kv_growth_ns},
    {"kv_evictions", "1", DLAB_LOWER_IS_BETTER, false, "blocks taken from cached prefixes", kv_evictions},
    {"kv_copies", "1", DLAB_LOWER_IS_BETTER, false, "shared blocks copied because one sequence was to write them",
     kv_copies},
};

const dlab_metric_family dlab_metrics_kv = {metrics, sizeof metrics / sizeof *metrics};
