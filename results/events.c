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

dlab_ev_token *dlab_events_tokens(const dlab_run *r, const dlab_metric_window *w, size_t *n)
{
    *n = 0;
    if (r->n_tokens == 0) return NULL;
    dlab_ev_token *in = malloc(r->n_tokens * sizeof *in), *out = calloc(r->n_tokens, sizeof *out);
    if (!in || !out) {
        free(in);
        free(out);
        return NULL;
    }
    for (size_t i = 0; i < r->n_tokens; i++)
        if (dlab_event_in_window(&r->tokens[i], w) && isfinite(r->tokens[i].t)) in[(*n)++] = r->tokens[i];
    if (!deal_by_request(in, *n, out)) {
        memcpy(out, in, *n * sizeof *out);
        if (*n > 1) qsort(out, *n, sizeof *out, compare_tokens);
    }
    free(in);
    return out;
}

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
    bool prefill = f->n_first > 0 || s->prefill_rows > 0, decode = f->n_later > 0 || s->decode_rows > 0;
    if (prefill && decode) return DLAB_STEP_MIXED;
    if (decode) return DLAB_STEP_DECODE;
    return prefill || s->pad_rows > 0 ? DLAB_STEP_PREFILL : DLAB_STEP_IDLE;
}

dlab_step_facts *dlab_events_steps(const dlab_run *r, const dlab_metric_window *w)
{
    if (r->n_steps == 0) return NULL;
    dlab_step_facts *facts = calloc(r->n_steps, sizeof *facts);
    if (!facts) return NULL;
    for (size_t i = 0; i < r->n_steps; i++) facts[i].in_window = true;
    for (size_t i = 0; i < r->n_tokens; i++) {
        const dlab_ev_token *t = &r->tokens[i];
        if (!isfinite(t->t)) continue;
        dlab_step_facts *f = &facts[step_of(r, t->t)];
        if (t->index == 0)
            f->n_first++;
        else
            f->n_later++;
        if (!dlab_event_in_window(t, w)) f->in_window = false;
    }
    for (size_t i = 0; i < r->n_steps; i++) facts[i].kind = kind_of(&r->steps[i], &facts[i]);
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
        sum.later_tokens += facts ? facts[i].n_later : 0;
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
