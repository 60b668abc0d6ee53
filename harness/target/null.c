#include "harness/target/null.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t id, n_prompt, max_new, produced;
    int64_t at_ns; /* when it was submitted; once it runs, when it began */
} null_request;

typedef struct {
    dlab_target base;
    dlab_plan plan;
    dlab_null_opts opts;
    null_request *queue; /* waiting, in order of arrival: [head, head + waiting) */
    size_t head, waiting, cap;
    null_request *running; /* [max_seqs] in order of admission */
    size_t n_running, max_seqs;
    int64_t *freed_ns; /* [max_seqs] of each free place, when it became so; the earliest first */
    size_t n_free;
    dlab_step_token *tokens; /* [max_seqs] */
    int64_t *admitted;       /* [max_seqs] */
    int64_t *cached;         /* [max_seqs] zeros: nothing is ever cached */
    int32_t n_primed;
    bool shut;
} null_target;

extern const dlab_target_ops dlab_target_null;

static null_target *null_of(dlab_target *t) { return (null_target *)t; }

static void destroy(dlab_target *t)
{
    if (!t) return;
    null_target *s = null_of(t);
    free(s->queue);
    free(s->running);
    free(s->freed_ns);
    free(s->tokens);
    free(s->admitted);
    free(s->cached);
    free(s);
}

static void free_all_places(null_target *s)
{
    s->head = s->waiting = s->n_running = 0;
    s->n_free = s->max_seqs;
    memset(s->freed_ns, 0, s->max_seqs * sizeof *s->freed_ns);
    s->shut = false;
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
    s->running = calloc(s->max_seqs, sizeof *s->running);
    s->freed_ns = calloc(s->max_seqs, sizeof *s->freed_ns);
    s->tokens = calloc(s->max_seqs, sizeof *s->tokens);
    s->admitted = calloc(s->max_seqs, sizeof *s->admitted);
    s->cached = calloc(s->max_seqs, sizeof *s->cached);
    if (!s->running || !s->freed_ns || !s->tokens || !s->admitted || !s->cached) {
        destroy(&s->base);
        return DLAB_FAIL(err, DLAB_EOOM, "no memory for %lld sequences", (long long)needs->max_seqs);
    }
    free_all_places(s);
    *out = &s->base;
    return DLAB_OK;
}

static dlab_status create(const dlab_target_setup *setup, dlab_target **out, dlab_error *err)
{
    const dlab_null_opts opts = {
        .step_ns = setup->null_step_ns, .service_ns = setup->null_service_ns, .clock = setup->clock};
    return dlab_null_create(setup->plan, setup->needs, &opts, out, err);
}

/* Room for n more behind the last: what has left in front is used again before more is asked for. */
static dlab_status make_room(null_target *s, size_t n, dlab_error *err)
{
    if (s->cap - s->head - s->waiting >= n) return DLAB_OK;
    if (s->head > s->waiting + n) {
        memcpy(s->queue, s->queue + s->head, s->waiting * sizeof *s->queue);
        s->head = 0;
        return DLAB_OK;
    }
    const size_t used = s->head + s->waiting, cap = 2 * used + n + 63;
    null_request *q = realloc(s->queue, cap * sizeof *q);
    if (!q) return DLAB_FAIL(err, DLAB_EOOM, "no memory for %zu requests", cap);
    s->queue = q;
    s->cap = cap;
    return DLAB_OK;
}

static dlab_status submit(dlab_target *t, const dlab_engine_request *r, dlab_error *err)
{
    null_target *s = null_of(t);
    const size_t samples = r->samples > 1 ? (size_t)r->samples : 1;
    const int64_t now = s->opts.service_ns > 0 ? dlab_clock_now_ns(s->opts.clock) : 0;
    DLAB_TRY(make_room(s, samples, err));
    /* the prompt is computed once, by the first of them */
    for (size_t i = 0; i < samples; i++) {
        s->queue[s->head + s->waiting++] = (null_request){
            .id = r->id + (int64_t)i, .n_prompt = i == 0 ? r->n_prompt : 0, .max_new = r->max_new, .at_ns = now};
    }
    return DLAB_OK;
}

static bool busy(const dlab_target *t)
{
    const null_target *s = (const null_target *)t;
    return s->waiting > 0 || s->n_running > 0;
}

static void gate(dlab_target *t, bool open) { null_of(t)->shut = !open; }

/* The place that has been free for longest is taken first. */
static void admit(null_target *s, dlab_step *out)
{
    size_t taken = 0;
    while (!s->shut && s->waiting > 0 && taken < s->n_free) {
        null_request *r = &s->running[s->n_running++];
        *r = s->queue[s->head++];
        s->waiting--;
        if (s->freed_ns[taken] > r->at_ns) r->at_ns = s->freed_ns[taken];
        taken++;
        s->admitted[out->n_admitted++] = r->id;
        out->prefill_rows += (int32_t)r->n_prompt;
    }
    s->n_free -= taken;
    if (taken > 0) memmove(s->freed_ns, s->freed_ns + taken, s->n_free * sizeof *s->freed_ns);
}

static int64_t token_due(const null_target *s, const null_request *r)
{
    return r->at_ns + s->opts.service_ns * (r->produced + 1) / r->max_new;
}

static int64_t next_due(const null_target *s)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < s->n_running; i++) {
        const int64_t t = token_due(s, &s->running[i]);
        if (t < due) due = t;
    }
    return due;
}

static void free_place(null_target *s, int64_t at_ns)
{
    size_t k = s->n_free++;
    for (; k > 0 && s->freed_ns[k - 1] > at_ns; k--) s->freed_ns[k] = s->freed_ns[k - 1];
    s->freed_ns[k] = at_ns;
}

/* A token of each running request that is due by until_ns; those that have their last one leave. */
static void produce(null_target *s, int64_t until_ns, dlab_step *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        null_request *r = &s->running[i];
        const int64_t due = s->opts.service_ns > 0 ? token_due(s, r) : until_ns;
        bool last = false;
        if (due <= until_ns) {
            last = r->produced + 1 >= r->max_new;
            if (r->produced > 0) out->decode_rows++;
            s->tokens[out->n_tokens++] = (dlab_step_token){.request = r->id,
                                                           .index = (int32_t)r->produced++,
                                                           .finish = last ? DLAB_FINISH_LENGTH : DLAB_FINISH_NONE};
        }
        if (last)
            free_place(s, due);
        else
            s->running[kept++] = *r;
    }
    s->n_running = kept;
}

static dlab_status step(dlab_target *t, int64_t deadline_ns, dlab_target_step *result, dlab_error *err)
{
    (void)err;
    null_target *s = null_of(t);
    dlab_step *out = &result->step;
    *result = (dlab_target_step){0};
    *out = (dlab_step){.tokens = s->tokens,
                       .admitted = s->admitted,
                       .admitted_cached = s->cached,
                       .slots = (int32_t)s->max_seqs,
                       .launches = 1,
                       .waiting = (int32_t)(s->waiting < INT32_MAX ? s->waiting : INT32_MAX)};
    admit(s, out);
    out->seqs = (int32_t)s->n_running;
    if (s->n_running == 0) return DLAB_OK; /* behind a closed gate */
    int64_t until = 0;
    if (s->opts.service_ns > 0) {
        const int64_t due = next_due(s);
        dlab_clock_wait_until(s->opts.clock, due < deadline_ns ? due : deadline_ns);
        until = dlab_clock_now_ns(s->opts.clock);
    } else if (s->opts.step_ns > 0) {
        dlab_clock_wait_until(s->opts.clock, dlab_clock_now_ns(s->opts.clock) + s->opts.step_ns);
    }
    produce(s, until, out);
    out->rows = out->prefill_rows + out->decode_rows;
    return DLAB_OK;
}

static void cancel(dlab_target *t, bool keep_cache)
{
    (void)keep_cache;
    free_all_places(null_of(t));
}

static dlab_status prime(dlab_target *t, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err)
{
    (void)ids, (void)n, (void)err;
    *handle = null_of(t)->n_primed++;
    return DLAB_OK;
}

static const dlab_plan *plan_of(const dlab_target *t) { return &((const null_target *)t)->plan; }

const dlab_target_ops dlab_target_null = {.name = "null",
                                          .summary = "computes nothing: the harness's own cost",
                                          .create = create,
                                          .destroy = destroy,
                                          .submit = submit,
                                          .busy = busy,
                                          .step = step,
                                          .cancel = cancel,
                                          .gate = gate,
                                          .prime = prime,
                                          .plan = plan_of};
