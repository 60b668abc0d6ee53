#include "harness/run/drive.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/text.h"
#include "harness/probes/probes.h"
#include "harness/run/turns.h"

/* Reserving is only address space, and growing inside the run costs its time; bounds keep an absurd workload from asking for
 * all of it. */
#define TOKENS_MAX ((int64_t)1 << 26)
#define STEPS_MAX  ((int64_t)1 << 22)
/* Nobody who waits for a run, or for its end after an interruption, should wait longer than this for a sign of life. */
#define SLICE_NS ((int64_t)50 * 1000000)
#define NEVER    INT64_MAX

/* All times but the last two are since the run's start. */
typedef struct {
    dlab_target *target;
    dlab_clock *clock;
    const dlab_requests *requests;
    const int32_t *handles;
    const dlab_drive_opts *opts;
    dlab_run *run;
    dlab_source *source;
    dlab_turns *turns;    /* NULL: no conversations */
    int32_t *left;        /* [requests->n] answers still to come … */
    bool *failed;         /* … and whether one of them failed */
    size_t first_request; /* of this drive in run->requests; request ids count from 0 */
    int64_t n_requests;   /* every sample is one */
    int32_t samples;
    uint64_t sample_seed; /* of the plan, spread over all bits */
    int64_t n_taken, n_refused;
    char refusal[DLAB_ERROR_MSG];       /* the first */
    int64_t tick_ns;                    /* requests may start at the step that begins at it or next behind it */
    bool moved;                         /* a step was made, or waited for */
    int64_t step_begin_ns, step_end_ns; /* the device's last one */
    int64_t start_ns, next_sample_ns;   /* by the clock */
} driver;

static int64_t now_ns(const driver *d) { return dlab_clock_now_ns(d->clock) - d->start_ns; }

static int64_t at_most(int64_t value, int64_t max) { return value < max ? value : max; }

/* ---- before the clock starts ---------------------------------------------------------------------------------------- */

/* Each step produces a token or takes a row of a prompt, so the sum of both bounds the steps. */
static dlab_status reserve(const driver *d, dlab_error *err)
{
    const dlab_requests *q = d->requests;
    int64_t tokens = 0, rows = 0;
    for (int64_t i = 0; i < q->n; i++) {
        tokens = at_most(tokens + d->samples * at_most(q->output[i], TOKENS_MAX), TOKENS_MAX);
        rows = at_most(rows + at_most(q->prompt[i] + q->depth[i], STEPS_MAX), STEPS_MAX);
    }
    size_t steps = d->target->ops->remote ? 0 : (size_t)at_most(tokens + rows, STEPS_MAX);
    return dlab_run_reserve(d->run, d->run->n_requests + (size_t)d->n_requests, d->run->n_tokens + (size_t)tokens,
                            d->run->n_steps + steps, d->run->n_memory + steps + 1, err);
}

/* A row for each answer; those of requests that are never sent are taken out again at the end. */
static dlab_status add_requests(driver *d, dlab_error *err)
{
    const dlab_requests *q = d->requests;
    for (int64_t id = 0; id < d->n_requests; id++) {
        const int64_t i = id / d->samples;
        const dlab_ev_request e = {.id = id,
                                   .prompt_tokens = q->prompt[i],
                                   .depth_tokens = q->depth[i],
                                   .asked_tokens = q->output[i],
                                   .cached_tokens = -1,
                                   .t_sched = NAN,
                                   .t_submit = NAN,
                                   .t_admit = NAN,
                                   .t_first = NAN,
                                   .t_done = NAN,
                                   .priority = q->priority ? q->priority[i] : 0,
                                   .turn = d->turns ? dlab_turns_number(d->turns, i) : 0,
                                   .conversation = d->turns ? dlab_turns_first(d->turns, i) : id};
        DLAB_TRY(dlab_run_add_request(d->run, &e, err));
    }
    for (int64_t i = 0; i < q->n; i++) d->left[i] = d->samples;
    return DLAB_OK;
}

static dlab_status prepare(driver *d, dlab_error *err)
{
    const size_t n = d->requests->n > 0 ? (size_t)d->requests->n : 1;
    DLAB_TRY(dlab_turns_create(d->requests, &d->turns, err));
    DLAB_TRY(dlab_source_create(d->requests, &d->source, err));
    d->left = calloc(n, sizeof *d->left);
    d->failed = calloc(n, sizeof *d->failed);
    if (!d->left || !d->failed) return DLAB_FAIL(err, DLAB_EOOM, "no memory to follow %zu requests", n);
    DLAB_TRY(reserve(d, err));
    return add_requests(d, err);
}

/* ---- requests ------------------------------------------------------------------------------------------------------- */

static dlab_ev_request *request_of(driver *d, int64_t id)
{
    return id >= 0 && id < d->n_requests ? &d->run->requests[d->first_request + (size_t)id] : NULL;
}

/* What waits for the request's end is told, once. */
static void end_request(driver *d, dlab_ev_request *r, int64_t at_ns, dlab_failure failure)
{
    const int64_t i = r->id / d->samples;
    if (!isnan(r->t_done)) return;
    r->t_done = (double)at_ns;
    r->failure = (int32_t)failure;
    if (failure != DLAB_FAILURE_NONE) d->failed[i] = true;
    if (--d->left[i] == 0) dlab_source_ended(d->source, i, at_ns, d->failed[i]);
}

/* The others can be served. */
static void refuse(driver *d, int64_t i, const char *why)
{
    if (d->n_refused++ == 0) dlab_text_copy(d->refusal, sizeof d->refusal, why);
    const int64_t at_ns = now_ns(d);
    d->run->t_end = (double)at_ns;
    for (int32_t j = 0; j < d->samples; j++)
        end_request(d, request_of(d, i * d->samples + j), at_ns, DLAB_FAILURE_REJECTED);
}

/* At a closed gate's idle target the next tick is the first one at or behind the arrival, however late it is seen. */
static void arrive_at_rest(driver *d, int64_t sched_ns)
{
    const int64_t every = d->opts->interval_ns;
    const int64_t tick_ns = every > 0 ? (sched_ns + every - 1) / every * every : 0;
    if (tick_ns > d->tick_ns) d->tick_ns = tick_ns;
}

/* The queue in front of a target in this process takes requests at any time; it is looked into between two steps. So one
 * that came due during a step was sent then, and what it waited for the step's end is its wait for the target. */
static double sent_at(const driver *d, int64_t sched_ns)
{
    const bool in_step = sched_ns >= d->step_begin_ns && sched_ns < d->step_end_ns;
    return (double)(in_step ? sched_ns : now_ns(d));
}

static dlab_status submit_one(driver *d, int64_t i, int64_t sched_ns, dlab_error *err)
{
    const dlab_requests *q = d->requests;
    const int32_t handle = d->handles ? d->handles[i] : -1;
    const int64_t skip = handle >= 0 ? dlab_requests_primed(q, i) : 0;
    int64_t n = q->depth[i] + q->prompt[i];
    const int32_t *prompt = d->turns ? dlab_turns_prompt(d->turns, i, &n) : q->ids + q->offset[i];
    const dlab_engine_request r = {.id = i * d->samples,
                                   .prompt = prompt + skip,
                                   .n_prompt = n - skip,
                                   .max_new = q->output[i],
                                   .eos = d->opts->eos,
                                   .seed = q->seed[i] ^ d->sample_seed,
                                   .primed = handle,
                                   .samples = d->samples,
                                   .priority = q->priority ? q->priority[i] : 0};
    if (!d->target->ops->busy(d->target)) arrive_at_rest(d, sched_ns);
    const double t_submit = sent_at(d, sched_ns);
    for (int32_t j = 0; j < d->samples; j++) {
        dlab_ev_request *e = request_of(d, r.id + j);
        e->t_sched = (double)sched_ns;
        e->t_submit = t_submit;
        e->prompt_tokens = n - q->depth[i];
    }
    const dlab_status st = d->target->ops->submit(d->target, &r, err);
    if (st != DLAB_EIMPOSSIBLE) {
        d->n_taken++;
        return st;
    }
    refuse(d, i, err->msg);
    *err = (dlab_error){0};
    return DLAB_OK;
}

/* Those that are due at now_ns; what comes due meanwhile waits for the next step's end, so that arrivals cannot keep the
 * target from stepping. */
static dlab_status submit_due(driver *d, int64_t now, dlab_error *err)
{
    int64_t sched_ns = 0;
    for (int64_t i; (i = dlab_source_take(d->source, now, &sched_ns)) >= 0;) DLAB_TRY(submit_one(d, i, sched_ns, err));
    return DLAB_OK;
}

/* ---- what a step tells ---------------------------------------------------------------------------------------------- */

static dlab_status add_step(driver *d, const dlab_step *s, double t_begin, double t_end, dlab_error *err)
{
    dlab_ev_step e = {.t_begin = t_begin,
                      .t_end = t_end,
                      .rows = s->rows,
                      .prefill_rows = s->prefill_rows,
                      .decode_rows = s->decode_rows,
                      .pad_rows = s->pad_rows,
                      .seqs = s->seqs,
                      .slots = s->slots,
                      .launches = (int32_t)at_most(s->launches, INT32_MAX),
                      .budget = s->budget,
                      .bytes = s->bytes,
                      .kv_bytes = s->kv_bytes,
                      .flops = s->flops,
                      .int8_flops = s->int8_flops,
                      .bf16_flops = s->bf16_flops,
                      .kv_dense_bytes = s->kv_dense_bytes,
                      .inter_bytes = s->inter_bytes,
                      .kv_reserved = s->kv.reserved_bytes,
                      .kv_used = s->kv.used_bytes,
                      .kv_cached = s->kv.cached_bytes,
                      .kv_free = s->kv.free_bytes,
                      .kv_unusable = s->kv.unusable_bytes,
                      .kv_shared = s->kv.shared_bytes,
                      .preempted = s->preempted,
                      .growths = s->growths,
                      .nonfinite = s->nonfinite_rows,
                      .waiting = s->waiting,
                      .pad_skipped = s->pad_skipped,
                      .swapped_out = s->swapped_out,
                      .swapped_in = s->swapped_in,
                      .swap_bytes = s->swap_bytes};
    if (!d->target->ops->memory)
        e.kv_reserved = e.kv_used = e.kv_cached = e.kv_free = e.kv_unusable = e.kv_shared = -1;
    else if (s->kv.pool_bytes > d->run->kv_pool)
        d->run->kv_pool = s->kv.pool_bytes;
    return dlab_run_add_step(d->run, &e, err);
}

static dlab_status unknown_request(const char *what, int64_t id, dlab_error *err)
{
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%s request %lld, which was never submitted", what, (long long)id);
}

static dlab_status add_admitted(driver *d, const dlab_step *s, double t_begin, dlab_error *err)
{
    for (int32_t i = 0; i < s->n_admitted; i++) {
        dlab_ev_request *r = request_of(d, s->admitted[i]);
        if (!r) return unknown_request("the target began", s->admitted[i], err);
        r->t_admit = t_begin;
        if (s->admitted_cached) r->cached_tokens = s->admitted_cached[i];
    }
    return DLAB_OK;
}

static dlab_status add_tokens(driver *d, const dlab_target_step *result, int64_t end_ns, dlab_error *err)
{
    const dlab_step *s = &result->step;
    for (int32_t i = 0; i < s->n_tokens; i++) {
        const dlab_step_token *k = &s->tokens[i];
        dlab_ev_request *r = request_of(d, k->request);
        if (!r) return unknown_request("a token came for", k->request, err);
        const int64_t at_ns = result->token_ns ? result->token_ns[i] - d->start_ns : end_ns;
        const dlab_ev_token e = {.request = k->request, .index = k->index, .token = k->token, .t = (double)at_ns};
        DLAB_TRY(dlab_run_add_token(d->run, &e, err));
        if (d->turns) dlab_turns_token(d->turns, k->request, k->token);
        r->new_tokens++;
        if (k->index == 0) r->t_first = e.t;
        if (k->finish != DLAB_FINISH_NONE) {
            r->finish = (int32_t)k->finish;
            end_request(d, r, at_ns, DLAB_FAILURE_NONE);
        }
    }
    return DLAB_OK;
}

static dlab_status add_ends(driver *d, const dlab_target_step *result, dlab_error *err)
{
    for (int32_t i = 0; i < result->n_ends; i++) {
        const dlab_target_end *end = &result->ends[i];
        dlab_ev_request *r = request_of(d, end->id);
        if (!r) return unknown_request("the target ended", end->id, err);
        /* of a server that does not tell, the tokens that have a time are not all */
        if (end->new_tokens >= 0 || (d->target->ops->remote && end->failure == DLAB_FAILURE_NONE))
            r->new_tokens = end->new_tokens;
        if (end->prompt_tokens >= 0) r->prompt_tokens = end->prompt_tokens;
        if (end->cached_tokens >= 0) r->cached_tokens = end->cached_tokens;
        r->http_status = end->http_status;
        if (end->finish != DLAB_FINISH_NONE) r->finish = (int32_t)end->finish;
        end_request(d, r, end->t_ns - d->start_ns, end->failure);
    }
    return DLAB_OK;
}

static dlab_status add_memory(driver *d, int64_t clock_ns, dlab_error *err)
{
    dlab_mem_stats mem = {0};
    dlab_ev_memory e = {.t = (double)(clock_ns - d->start_ns),
                        .weights = -1,
                        .kv = -1,
                        .activations = -1,
                        .scratch = -1,
                        .rss = d->opts->sample_rss ? dlab_probe_rss_bytes() : -1};
    if (d->target->ops->memory) {
        d->target->ops->memory(d->target, &mem, NULL);
        e.weights = (int64_t)mem.pool[DLAB_POOL_WEIGHTS].used_bytes;
        e.kv = (int64_t)mem.pool[DLAB_POOL_KV].used_bytes;
        e.activations = (int64_t)mem.pool[DLAB_POOL_ACTIVATIONS].used_bytes;
        e.scratch = (int64_t)mem.pool[DLAB_POOL_SCRATCH].used_bytes;
    }
    d->next_sample_ns = clock_ns + d->opts->memory_sample_ns;
    return dlab_run_add_memory(d->run, &e, err);
}

/* A remote target's steps are waits, and its memory is not ours. */
static dlab_status add_device(driver *d, const dlab_step *s, int64_t begin_ns, int64_t end_ns, dlab_error *err)
{
    if (d->target->ops->remote) return DLAB_OK;
    d->step_begin_ns = begin_ns;
    d->step_end_ns = end_ns;
    if (s->rows > 0 || s->n_tokens > 0) DLAB_TRY(add_step(d, s, (double)begin_ns, (double)end_ns, err));
    return end_ns + d->start_ns >= d->next_sample_ns ? add_memory(d, end_ns + d->start_ns, err) : DLAB_OK;
}

/* ---- the loop ------------------------------------------------------------------------------------------------------- */

/* Until when nothing need be done. */
static int64_t wake_ns(const driver *d, int64_t now, bool closed)
{
    const dlab_drive_opts *o = d->opts;
    int64_t until = dlab_source_due_ns(d->source);
    if (closed) until = at_most(until, d->tick_ns);
    if (o->time_limit_ns > 0) until = at_most(until, o->time_limit_ns);
    if (o->interrupted || o->pulse) until = at_most(until, now + SLICE_NS);
    return until;
}

/* Open for the one step that begins at a tick or next behind it. */
static bool set_gate(driver *d, int64_t now)
{
    const int64_t every = d->opts->interval_ns;
    if (every <= 0 || !d->target->ops->gate) return true;
    const bool open = now >= d->tick_ns;
    if (open) d->tick_ns = (now / every + 1) * every;
    d->target->ops->gate(d->target, open);
    return open;
}

/* *closed: nothing runs, and nothing may start before the next tick. */
static dlab_status step_once(driver *d, bool *closed, dlab_error *err)
{
    const dlab_target_ops *ops = d->target->ops;
    dlab_target_step result;
    const dlab_step *s = &result.step;
    const int64_t begin_ns = now_ns(d);
    const bool open = set_gate(d, begin_ns);
    const int64_t deadline_ns = wake_ns(d, begin_ns, !open);
    DLAB_TRY(ops->step(d->target, deadline_ns == NEVER ? NEVER : deadline_ns + d->start_ns, &result, err));
    const int64_t end_ns = now_ns(d);
    dlab_pulse_beat(d->opts->pulse);
    d->moved = true;
    if (s->rows == 0 && s->n_tokens == 0 && s->n_admitted == 0 && result.n_ends == 0) {
        *closed = !open;
        if (ops->remote || !open || end_ns >= deadline_ns) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_EINTERNAL, "a step of target %s did nothing although requests wait", ops->name);
    }
    d->run->t_end = (double)end_ns;
    DLAB_TRY(add_admitted(d, s, (double)begin_ns, err));
    DLAB_TRY(add_tokens(d, &result, end_ns, err));
    DLAB_TRY(add_ends(d, &result, err));
    return add_device(d, s, begin_ns, end_ns, err);
}

static dlab_status wait_for_work(driver *d, bool closed, dlab_error *err)
{
    if (!closed && dlab_source_due_ns(d->source) == NEVER) {
        if (dlab_source_over(d->source)) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_EINTERNAL, "nothing runs and nothing is due, yet requests are left");
    }
    dlab_clock_wait_until(d->clock, wake_ns(d, now_ns(d), closed) + d->start_ns);
    dlab_pulse_beat(d->opts->pulse);
    d->moved = true;
    return DLAB_OK;
}

static dlab_status run_all(driver *d, dlab_error *err)
{
    const dlab_drive_opts *o = d->opts;
    const dlab_target_ops *ops = d->target->ops;
    while (ops->busy(d->target) || !dlab_source_over(d->source)) {
        const int64_t now = now_ns(d);
        if (o->interrupted && *o->interrupted) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted");
        /* at least one step, however short the limit: a run with no step at all would say nothing */
        if (o->time_limit_ns > 0 && now >= o->time_limit_ns && d->moved) {
            /* what came due during the last step was not served either, and is seen to wait */
            DLAB_TRY(submit_due(d, o->time_limit_ns, err));
            d->run->status = DLAB_RUN_TRUNCATED;
            d->run->t_end = (double)now;
            return DLAB_OK;
        }
        DLAB_TRY(submit_due(d, now, err));
        bool rests = !ops->busy(d->target), closed = false;
        if (!rests) DLAB_TRY(step_once(d, &closed, err));
        if (rests || closed) DLAB_TRY(wait_for_work(d, closed, err));
    }
    return DLAB_OK;
}

static void tell_used_up(const driver *d)
{
    const int64_t at_ns = dlab_source_used_up_ns(d->source);
    dlab_run *run = d->run;
    const size_t used = strlen(run->reason);
    if (at_ns < 0 || run->status != DLAB_RUN_OK) return;
    snprintf(run->reason + used, sizeof run->reason - used, "%sits requests were used up after %.3g of %.3g s",
             used ? "; " : "", (double)at_ns * 1e-9, (double)d->requests->duration_ns * 1e-9);
}

/* A run of which every request was refused has nothing to say. */
static dlab_status tell_refusals(const driver *d, dlab_error *err)
{
    if (d->n_refused == 0) return DLAB_OK;
    if (d->n_taken == 0) return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "%s", d->refusal);
    snprintf(d->run->reason, sizeof d->run->reason, "%" PRId64 " of %" PRId64 " requests refused; the first: %.400s",
             d->n_refused, d->n_refused + d->n_taken, d->refusal);
    return DLAB_OK;
}

static void forget_unsent(driver *d)
{
    dlab_run *run = d->run;
    size_t kept = d->first_request;
    for (size_t k = d->first_request; k < run->n_requests; k++)
        if (!isnan(run->requests[k].t_submit)) run->requests[kept++] = run->requests[k];
    run->n_requests = kept;
}

dlab_status dlab_drive(dlab_target *t, dlab_clock *clock, const dlab_requests *requests, const int32_t *handles,
                       const dlab_drive_opts *opts, dlab_run *out, dlab_error *err)
{
    dlab_error own = {0};
    dlab_error *e = err ? err : &own;
    uint64_t seed = (uint64_t)t->ops->plan(t)->sample_seed;
    const int32_t samples = requests->samples > 1 ? requests->samples : 1;
    driver d = {.target = t,
                .clock = clock,
                .requests = requests,
                .handles = handles,
                .opts = opts,
                .run = out,
                .first_request = out->n_requests,
                .n_requests = requests->n * samples,
                .samples = samples,
                .sample_seed = dlab_splitmix64(&seed)};
    out->status = DLAB_RUN_OK;
    out->t_end = 0;
    dlab_status st = prepare(&d, e);
    if (st != DLAB_OK) goto done;
    d.start_ns = dlab_clock_now_ns(clock);
    DLAB_TRY_DONE(st, add_memory(&d, d.start_ns, e)); /* what is there before anything runs; not part of the time */
    d.start_ns = dlab_clock_now_ns(clock);
    st = run_all(&d, e);
    if (st == DLAB_OK) st = tell_refusals(&d, e);
    if (st == DLAB_OK) tell_used_up(&d);
    /* nothing is left after a whole run; after any other end the target must be idle again */
    t->ops->cancel(t, opts->keep_cache);

done:
    forget_unsent(&d);
    dlab_source_destroy(d.source);
    dlab_turns_destroy(d.turns);
    free(d.left);
    free(d.failed);
    return st;
}
