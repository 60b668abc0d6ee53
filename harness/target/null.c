#include "harness/target/null.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t id, n_prompt, max_new, produced;
} null_request;

typedef struct {
    dlab_target base;
    dlab_plan plan;
    dlab_null_opts opts;
    null_request *queue; /* [n] live requests in order of arrival; the first max_seqs of them run */
    size_t n, cap, max_seqs;
    dlab_step_token *tokens; /* [max_seqs] */
    int64_t *admitted;       /* [max_seqs] */
    int64_t *cached;         /* [max_seqs] zeros: nothing is ever cached */
    int32_t n_primed;
} null_target;

extern const dlab_target_ops dlab_target_null;

static null_target *null_of(dlab_target *t) { return (null_target *)t; }

static void destroy(dlab_target *t)
{
    if (!t) return;
    null_target *s = null_of(t);
    free(s->queue);
    free(s->tokens);
    free(s->admitted);
    free(s->cached);
    free(s);
}

dlab_status dlab_null_create(const dlab_plan *plan, const dlab_engine_needs *needs, const dlab_null_opts *opts,
                             dlab_target **out, dlab_error *err)
{
    *out = NULL;
    if (needs->max_seqs < 1 || needs->max_seqs > INT32_MAX) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "null target: %lld sequences at once; 1 to %d are possible",
                         (long long)needs->max_seqs, INT32_MAX);
    }
    null_target *s = calloc(1, sizeof *s);
    if (!s) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a target");
    s->base.ops = &dlab_target_null;
    s->plan = *plan;
    s->opts = *opts;
    if (!s->opts.clock) s->opts.clock = dlab_clock_real();
    s->max_seqs =
        (size_t)(plan->batch_size > 0 && plan->batch_size < needs->max_seqs ? plan->batch_size : needs->max_seqs);
    s->tokens = calloc(s->max_seqs, sizeof *s->tokens);
    s->admitted = calloc(s->max_seqs, sizeof *s->admitted);
    s->cached = calloc(s->max_seqs, sizeof *s->cached);
    if (!s->tokens || !s->admitted || !s->cached) {
        destroy(&s->base);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for %lld sequences", (long long)needs->max_seqs);
    }
    *out = &s->base;
    return DLAB_OK;
}

static dlab_status create(const dlab_plan *plan, const dlab_model *model, const dlab_engine_needs *needs,
                          dlab_target **out, dlab_error *err)
{
    (void)model;
    return dlab_null_create(plan, needs, &(dlab_null_opts){0}, out, err);
}

static dlab_status submit(dlab_target *t, const dlab_engine_request *r, dlab_error *err)
{
    null_target *s = null_of(t);
    size_t samples = r->samples > 1 ? (size_t)r->samples : 1;
    if (s->cap - s->n < samples) {
        size_t cap = 2 * s->cap > s->n + samples ? 2 * s->cap : s->n + samples + 63;
        null_request *q = realloc(s->queue, cap * sizeof *q);
        if (!q) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu requests", cap);
        s->queue = q;
        s->cap = cap;
    }
    /* the prompt is computed once, by the first of them */
    for (size_t i = 0; i < samples; i++) {
        s->queue[s->n++] =
            (null_request){.id = r->id + (int64_t)i, .n_prompt = i == 0 ? r->n_prompt : 0, .max_new = r->max_new};
    }
    return DLAB_OK;
}

static bool busy(const dlab_target *t) { return ((const null_target *)t)->n > 0; }

static void spend(const null_target *s)
{
    if (s->opts.step_ns <= 0) return;
    int64_t until = dlab_clock_now_ns(s->opts.clock) + s->opts.step_ns;
    dlab_clock_wait_until(s->opts.clock, until);
}

static dlab_status step(dlab_target *t, dlab_step *out, dlab_error *err)
{
    (void)err;
    null_target *s = null_of(t);
    size_t running = s->n < s->max_seqs ? s->n : s->max_seqs, kept = 0;
    *out = (dlab_step){.tokens = s->tokens,
                       .admitted = s->admitted,
                       .admitted_cached = s->cached,
                       .n_tokens = (int32_t)running,
                       .seqs = (int32_t)running,
                       .slots = (int32_t)s->max_seqs,
                       .launches = 1};
    for (size_t i = 0; i < running; i++) {
        null_request *r = &s->queue[i];
        if (r->produced == 0) {
            s->admitted[out->n_admitted++] = r->id;
            out->prefill_rows += (int32_t)r->n_prompt;
        } else {
            out->decode_rows++;
        }
        bool last = r->produced + 1 >= r->max_new;
        s->tokens[i] = (dlab_step_token){
            .request = r->id, .index = (int32_t)r->produced++, .finish = last ? DLAB_FINISH_LENGTH : DLAB_FINISH_NONE};
        if (!last) s->queue[kept++] = *r;
    }
    if (kept < running) {
        memmove(s->queue + kept, s->queue + running, (s->n - running) * sizeof *s->queue);
        s->n -= running - kept;
    }
    out->rows = out->prefill_rows + out->decode_rows;
    spend(s);
    return DLAB_OK;
}

static void cancel(dlab_target *t) { null_of(t)->n = 0; }

static dlab_status prime(dlab_target *t, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err)
{
    (void)ids, (void)n, (void)err;
    *handle = null_of(t)->n_primed++;
    return DLAB_OK;
}

static void memory(const dlab_target *t, dlab_mem_stats *mem, dlab_kv_stats *kv)
{
    (void)t;
    *mem = (dlab_mem_stats){0};
    if (kv) *kv = (dlab_kv_stats){0};
}

static void reset_peaks(dlab_target *t) { (void)t; }

static const dlab_plan *plan_of(const dlab_target *t) { return &((const null_target *)t)->plan; }

const dlab_target_ops dlab_target_null = {.name = "null",
                                          .summary = "computes nothing: the harness's own cost",
                                          .create = create,
                                          .destroy = destroy,
                                          .submit = submit,
                                          .busy = busy,
                                          .step = step,
                                          .cancel = cancel,
                                          .prime = prime,
                                          .memory = memory,
                                          .reset_peaks = reset_peaks,
                                          .plan = plan_of};
