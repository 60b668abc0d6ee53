#include "results/events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_tokens(const void *a, const void *b)
{
    const dlab_ev_token *x = a, *y = b;
    if (x->request != y->request) return x->request < y->request ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

bool dlab_event_in_window(const dlab_ev_token *t, const dlab_metric_window *w)
{
    return t->index >= w->first && t->index <= w->last && t->request >= w->first_request &&
           t->request <= w->last_request;
}

/* Tokens come in the order of time. Where request ids are small numbers, as our own are, dealing them out by request
 * keeps each request's tokens in order and is much faster than a general sort; false when that does not work out. */
static bool deal_by_request(const dlab_ev_token *in, size_t n, dlab_ev_token *out)
{
    int64_t most = -1;
    for (size_t i = 0; i < n; i++) {
        if (in[i].request < 0 || in[i].request > (int64_t)n) return false;
        if (in[i].request > most) most = in[i].request;
    }
    size_t *at = calloc((size_t)(most + 2), sizeof *at);
    if (!at) return false;
    for (size_t i = 0; i < n; i++) at[in[i].request + 1]++;
    for (int64_t k = 0; k < most; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) out[at[in[i].request]++] = in[i];
    free(at);
    for (size_t i = 1; i < n; i++)
        if (compare_tokens(&out[i - 1], &out[i]) > 0) return false;
    return true;
}

bool dlab_event_served(const dlab_ev_request *q) { return q->failure == DLAB_FAILURE_NONE; }

static int compare_ids(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

typedef struct {
    int64_t *ids; /* ascending; NULL where n is 0 */
    size_t n;
} id_set;

/* False: no memory. */
static bool failed_ids(const dlab_run *r, id_set *out)
{
    *out = (id_set){0};
    for (size_t i = 0; i < r->n_requests; i++) out->n += !dlab_event_served(&r->requests[i]);
    if (out->n == 0) return true;
    out->ids = malloc(out->n * sizeof *out->ids);
    if (!out->ids) return false;
    out->n = 0;
    for (size_t i = 0; i < r->n_requests; i++)
        if (!dlab_event_served(&r->requests[i])) out->ids[out->n++] = r->requests[i].id;
    qsort(out->ids, out->n, sizeof *out->ids, compare_ids);
    return true;
}

static bool has_id(const id_set *s, int64_t id)
{
    return s->n > 0 && bsearch(&id, s->ids, s->n, sizeof *s->ids, compare_ids) != NULL;
}

dlab_ev_token *dlab_events_tokens(const dlab_run *r, const dlab_metric_window *w, bool all, size_t *n)
{
    id_set failed;
    dlab_ev_token *in = NULL, *out = NULL;
    *n = 0;
    if (r->n_tokens == 0 || !failed_ids(r, &failed)) return NULL;
    in = malloc(r->n_tokens * sizeof *in);
    out = in ? calloc(r->n_tokens, sizeof *out) : NULL;
    for (size_t i = 0; out && i < r->n_tokens; i++) {
        const dlab_ev_token *t = &r->tokens[i];
        if (dlab_event_in_window(t, w) && isfinite(t->t) && (all || !has_id(&failed, t->request))) in[(*n)++] = *t;
    }
    if (out && !deal_by_request(in, *n, out)) {
        memcpy(out, in, *n * sizeof *out);
        if (*n > 1) qsort(out, *n, sizeof *out, compare_tokens);
    }
    free(failed.ids);
    free(in);
    return out;
}

/* ---- a request at a time -------------------------------------------------------------------------------------------- */

typedef struct {
    const dlab_ev_request *request;
} request_ref;

static int compare_requests(const void *a, const void *b)
{
    const request_ref *x = a, *y = b;
    return (x->request->id > y->request->id) - (x->request->id < y->request->id);
}

/* By id, to go along with tokens that are in that order. malloc'd; NULL: no memory. */
static request_ref *requests_by_id(const dlab_run *r)
{
    request_ref *q = malloc((r->n_requests + 1) * sizeof *q);
    for (size_t i = 0; q && i < r->n_requests; i++) q[i].request = &r->requests[i];
    if (q && r->n_requests > 1) qsort(q, r->n_requests, sizeof *q, compare_requests);
    return q;
}

/* The request of this id at or behind *at, which moves there; NULL: the run has none. */
static const dlab_ev_request *request_of(const dlab_run *r, const request_ref *by_id, size_t *at, int64_t id)
{
    while (*at < r->n_requests && by_id[*at].request->id < id) (*at)++;
    return *at < r->n_requests && by_id[*at].request->id == id ? by_id[*at].request : NULL;
}

dlab_request_pace *dlab_events_paces(const dlab_run *r, const dlab_metric_window *w, size_t *n)
{
    size_t n_tokens, at = 0;
    const bool whole = dlab_metric_window_is_all(w);
    dlab_ev_token *t = dlab_events_tokens(r, w, false, &n_tokens);
    request_ref *by_id = t ? requests_by_id(r) : NULL;
    dlab_request_pace *out = by_id ? malloc((n_tokens + 1) * sizeof *out) : NULL;
    *n = 0;
    for (size_t i = 0, j; out && i < n_tokens; i = j) {
        for (j = i + 1; j < n_tokens && t[j].request == t[i].request;) j++;
        const dlab_ev_request *q = request_of(r, by_id, &at, t[i].request);
        const int64_t seen = (int64_t)t[j - 1].index - t[i].index;
        const int64_t made = whole && q && q->new_tokens > 0 ? q->new_tokens - 1 : seen;
        out[(*n)++] = (dlab_request_pace){t[i].request, made > 0 ? (t[j - 1].t - t[i].t) / (double)made : NAN};
    }
    free(by_id);
    free(t);
    return out;
}

static int compare_output(const void *a, const void *b)
{
    const dlab_output *x = a, *y = b;
    return (x->t > y->t) - (x->t < y->t);
}

#define SPREAD_MAX 1000 /* places of one request's tokens whose times are not known */

/* Where the tokens that have a time are not all, only the first and the last are known to be what they are: those after the
 * first are spread evenly over the time between. */
static bool is_spread(const dlab_ev_request *q, size_t timed)
{
    return q && q->new_tokens > 0 && (size_t)q->new_tokens != timed;
}

/* How many places dlab_output needs for a request. */
static size_t places_of(const dlab_ev_request *q, size_t timed)
{
    if (!is_spread(q, timed)) return timed;
    return q->new_tokens > SPREAD_MAX ? SPREAD_MAX : (size_t)q->new_tokens;
}

static void put_output(const dlab_ev_request *q, const dlab_ev_token *t, size_t timed, dlab_output *out)
{
    const size_t places = places_of(q, timed);
    if (!is_spread(q, timed)) {
        for (size_t k = 0; k < timed; k++) out[k] = (dlab_output){t[k].t, q && q->new_tokens < 0 ? NAN : 1};
        return;
    }
    const double first = t[0].t, length = t[timed - 1].t - first, steps = (double)places - 1;
    out[0] = (dlab_output){first, 1};
    for (size_t k = 1; k < places; k++)
        out[k] = (dlab_output){first + length * (double)k / steps, ((double)q->new_tokens - 1) / steps};
}

/* The requests of tokens that are in the order of their ids, one after the other; out may be NULL. Returns the places. */
static size_t put_outputs(const dlab_run *r, const request_ref *by_id, const dlab_ev_token *t, size_t n_tokens,
                          dlab_output *out)
{
    size_t at = 0, n = 0;
    for (size_t i = 0, j; i < n_tokens; i = j) {
        for (j = i + 1; j < n_tokens && t[j].request == t[i].request;) j++;
        const dlab_ev_request *q = request_of(r, by_id, &at, t[i].request);
        if (out) put_output(q, t + i, j - i, out + n);
        n += places_of(q, j - i);
    }
    return n;
}

dlab_output *dlab_events_output(const dlab_run *r, size_t *n)
{
    size_t n_tokens;
    dlab_ev_token *t = dlab_events_tokens(r, &DLAB_WINDOW_ALL, false, &n_tokens);
    request_ref *by_id = t ? requests_by_id(r) : NULL;
    *n = by_id ? put_outputs(r, by_id, t, n_tokens, NULL) : 0;
    dlab_output *out = by_id ? malloc((*n + 1) * sizeof *out) : NULL;
    if (out) put_outputs(r, by_id, t, n_tokens, out);
    if (out && *n > 1) qsort(out, *n, sizeof *out, compare_output);
    free(by_id);
    free(t);
    return out;
}

/* ---- steps ---------------------------------------------------------------------------------------------------------- */

/* A token is stamped when its step has ended and before the next begins, so it belongs to the last step that began
 * strictly before it (under a virtual clock the next step begins at that very instant). */
static size_t step_of(const dlab_run *r, double t)
{
    size_t lo = 0, hi = r->n_steps;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (r->steps[mid].t_begin < t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? lo - 1 : 0;
}

/* The last piece of a padded prompt can be all padding: that is the price of a prefill too. */
static dlab_step_kind kind_of(const dlab_ev_step *s, const dlab_step_facts *f)
{
    const bool told = s->prefill_rows > 0 || s->decode_rows > 0 || s->pad_rows > 0;
    const bool prefill = told ? s->prefill_rows > 0 : f->n_first > 0,
               decode = told ? s->decode_rows > 0 : f->n_later > 0;
    if (prefill && decode) return DLAB_STEP_MIXED;
    if (decode) return DLAB_STEP_DECODE;
    return prefill || s->pad_rows > 0 ? DLAB_STEP_PREFILL : DLAB_STEP_IDLE;
}

dlab_step_facts *dlab_events_steps(const dlab_run *r, const dlab_metric_window *w)
{
    id_set failed;
    if (r->n_steps == 0 || !failed_ids(r, &failed)) return NULL;
    dlab_step_facts *facts = calloc(r->n_steps, sizeof *facts);
    for (size_t i = 0; facts && i < r->n_steps; i++) facts[i].in_window = true;
    for (size_t i = 0; facts && i < r->n_tokens; i++) {
        const dlab_ev_token *t = &r->tokens[i];
        if (!isfinite(t->t)) continue;
        dlab_step_facts *f = &facts[step_of(r, t->t)];
        if (t->index == 0) {
            f->n_first++;
        } else {
            f->n_later++;
            f->later_served += !has_id(&failed, t->request);
        }
        if (!dlab_event_in_window(t, w)) f->in_window = false;
    }
    for (size_t i = 0; facts && i < r->n_steps; i++) facts[i].kind = kind_of(&r->steps[i], &facts[i]);
    free(failed.ids);
    return facts;
}

double dlab_event_step_seconds(const dlab_ev_step *s)
{
    double ns = s->t_end - s->t_begin;
    return isfinite(ns) && ns > 0 ? ns * 1e-9 : 0;
}

bool dlab_events_counts(const dlab_step_facts *facts, size_t i, int kind)
{
    return kind == DLAB_STEPS_ALL || ((int)facts[i].kind == kind && facts[i].in_window);
}

int dlab_events_work_kind(const dlab_run *r, const dlab_step_facts *facts)
{
    for (size_t i = 0; i < r->n_steps; i++)
        if (facts[i].kind == DLAB_STEP_DECODE) return DLAB_STEP_DECODE;
    return DLAB_STEPS_ALL;
}

dlab_step_sum dlab_events_sum(const dlab_run *r, const dlab_step_facts *facts, int kind)
{
    dlab_step_sum sum = {0};
    for (size_t i = 0; i < r->n_steps; i++) {
        const dlab_ev_step *s = &r->steps[i];
        if (!dlab_events_counts(facts, i, kind)) continue;
        sum.steps++;
        sum.rows += s->rows;
        sum.prefill_rows += s->prefill_rows;
        sum.pad_rows += s->pad_rows;
        if (s->budget > 0) {
            sum.budget += s->budget;
            sum.budget_rows += s->rows;
            sum.budget_steps++;
        }
        sum.seqs += s->seqs;
        sum.slots += s->slots;
        sum.launches += s->launches;
        sum.later_tokens += facts ? facts[i].later_served : 0;
        sum.seconds += dlab_event_step_seconds(s);
        sum.bytes += s->bytes;
        sum.kv_bytes += s->kv_bytes;
        sum.kv_dense_bytes += s->kv_dense_bytes;
        sum.inter_bytes += s->inter_bytes;
        sum.flops += s->flops;
    }
    return sum;
}

double dlab_events_mixed_share(const dlab_run *r, const dlab_step_facts *facts)
{
    double mixed = 0, all = 0;
    for (size_t i = 0; i < r->n_steps; i++) {
        double s = dlab_event_step_seconds(&r->steps[i]);
        all += s;
        if (facts[i].kind == DLAB_STEP_MIXED) mixed += s;
    }
    return all > 0 ? mixed / all : NAN;
}

double dlab_events_length_ns(const dlab_run *r)
{
    if (isfinite(r->t_end)) return r->t_end;
    return r->n_steps ? r->steps[r->n_steps - 1].t_end : NAN;
}

void dlab_events_mean(const double *x, size_t n, dlab_metric_value *out)
{
    double sum = 0;
    int64_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        sum += x[i];
        k++;
    }
    *out = (dlab_metric_value){.value = k ? sum / (double)k : NAN, .n = k};
}

int64_t dlab_events_quantile_min_n(double q) { return (int64_t)ceil(log(0.01) / log(q)); }

void dlab_events_quantile(double *x, size_t n, double q, dlab_metric_value *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i])) x[k++] = x[i];
    *out = (dlab_metric_value){.value = dlab_quantile(x, k, q), .n = (int64_t)k};
    out->low_n = k > 0 && q > 0.5 && q < 1 && (int64_t)k < dlab_events_quantile_min_n(q);
}
