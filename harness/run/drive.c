#include "harness/run/drive.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "harness/probes/probes.h"

/* Reserving more is only address space, but a bound keeps an absurd workload from asking for all of it. */
#define RESERVE_MAX ((int64_t)1 << 20)

typedef struct {
    dlab_target *target;
    dlab_clock *clock;
    const dlab_drive_opts *opts;
    dlab_run *run;
    int64_t start_ns, next_sample_ns;
    size_t first_request; /* of this drive in run->requests; request ids count from 0 */
    int64_t n_requests;   /* every sample is one */
    uint64_t sample_seed; /* of the plan, spread over all bits */
} driver;

static double since_start(const driver *d, int64_t now_ns) { return (double)(now_ns - d->start_ns); }

int64_t dlab_requests_primed(const dlab_requests *q, int64_t i)
{
    if (q->prompt[i] > 0 || q->depth[i] == 0) return q->depth[i];
    return q->depth[i] - 1;
}

static int64_t at_most(int64_t value, int64_t max) { return value < max ? value : max; }

static int32_t samples_of(const dlab_requests *q) { return q->samples > 1 ? q->samples : 1; }

/* Each step produces a token or takes a row of a prompt, so the sum of both bounds the steps. */
static dlab_status reserve(const driver *d, const dlab_requests *q, dlab_error *err)
{
    int64_t tokens = 0, rows = 0, samples = samples_of(q);
    for (int64_t i = 0; i < q->n; i++) {
        tokens = at_most(tokens + samples * at_most(q->output[i], RESERVE_MAX), RESERVE_MAX);
        rows = at_most(rows + at_most(q->prompt[i] + q->depth[i], RESERVE_MAX), RESERVE_MAX);
    }
    size_t steps = (size_t)at_most(tokens + rows, RESERVE_MAX);
    return dlab_run_reserve(d->run, d->run->n_requests + (size_t)d->n_requests, d->run->n_tokens + (size_t)tokens,
                            d->run->n_steps + steps, d->run->n_memory + steps + 1, err);
}

/* A row for each answer. */
static dlab_status add_requests(driver *d, const dlab_requests *q, int64_t i, dlab_error *err)
{
    const int32_t samples = samples_of(q);
    dlab_ev_request e = {.prompt_tokens = q->prompt[i],
                         .depth_tokens = q->depth[i],
                         .cached_tokens = -1,
                         .t_sched = 0,
                         .t_submit = since_start(d, dlab_clock_now_ns(d->clock)),
                         .t_admit = NAN,
                         .t_first = NAN,
                         .t_done = NAN};
    for (int32_t j = 0; j < samples; j++) {
        e.id = i * samples + j;
        DLAB_TRY(dlab_run_add_request(d->run, &e, err));
    }
    return DLAB_OK;
}

static dlab_status submit_all(driver *d, const dlab_requests *q, const int32_t *handles, dlab_error *err)
{
    const int32_t samples = samples_of(q);
    for (int64_t i = 0; i < q->n; i++) {
        int32_t handle = handles ? handles[i] : -1;
        int64_t skip = handle >= 0 ? dlab_requests_primed(q, i) : 0;
        dlab_engine_request r = {.id = i * samples,
                                 .prompt = q->ids + q->offset[i] + skip,
                                 .n_prompt = q->depth[i] + q->prompt[i] - skip,
                                 .max_new = q->output[i],
                                 .eos = d->opts->eos,
                                 .seed = q->seed[i] ^ d->sample_seed,
                                 .primed = handle,
                                 .samples = samples};
        DLAB_TRY(add_requests(d, q, i, err));
        DLAB_TRY(d->target->ops->submit(d->target, &r, err));
    }
    return DLAB_OK;
}

static dlab_ev_request *request_of(driver *d, int64_t id)
{
    return id >= 0 && id < d->n_requests ? &d->run->requests[d->first_request + (size_t)id] : NULL;
}

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
                      .nonfinite = s->nonfinite_rows};
    if (s->kv.pool_bytes > d->run->kv_pool) d->run->kv_pool = s->kv.pool_bytes;
    return dlab_run_add_step(d->run, &e, err);
}

static dlab_status add_admitted(driver *d, const dlab_step *s, double t_begin, dlab_error *err)
{
    for (int32_t i = 0; i < s->n_admitted; i++) {
        dlab_ev_request *r = request_of(d, s->admitted[i]);
        if (!r)
            return DLAB_FAIL(err, DLAB_EINTERNAL, "request %lld was admitted but never submitted",
                             (long long)s->admitted[i]);
        r->t_admit = t_begin;
        if (s->admitted_cached) r->cached_tokens = s->admitted_cached[i];
    }
    return DLAB_OK;
}

static dlab_status add_tokens(driver *d, const dlab_step *s, double t_end, dlab_error *err)
{
    for (int32_t i = 0; i < s->n_tokens; i++) {
        const dlab_step_token *k = &s->tokens[i];
        dlab_ev_request *r = request_of(d, k->request);
        if (!r)
            return DLAB_FAIL(err, DLAB_EINTERNAL, "a token came for request %lld, which was never submitted",
                             (long long)k->request);
        dlab_ev_token e = {.request = k->request, .index = k->index, .token = k->token, .t = t_end};
        DLAB_TRY(dlab_run_add_token(d->run, &e, err));
        r->new_tokens++;
        if (k->index == 0) r->t_first = t_end;
        if (k->finish != DLAB_FINISH_NONE) {
            r->t_done = t_end;
            r->finish = (int32_t)k->finish;
        }
    }
    return DLAB_OK;
}

static dlab_status add_memory(driver *d, int64_t now_ns, dlab_error *err)
{
    dlab_mem_stats mem = {0};
    d->target->ops->memory(d->target, &mem, NULL);
    dlab_ev_memory e = {.t = since_start(d, now_ns),
                        .weights = (int64_t)mem.pool[DLAB_POOL_WEIGHTS].used_bytes,
                        .kv = (int64_t)mem.pool[DLAB_POOL_KV].used_bytes,
                        .activations = (int64_t)mem.pool[DLAB_POOL_ACTIVATIONS].used_bytes,
                        .scratch = (int64_t)mem.pool[DLAB_POOL_SCRATCH].used_bytes,
                        .rss = d->opts->sample_rss ? dlab_probe_rss_bytes() : -1};
    d->next_sample_ns = now_ns + d->opts->memory_sample_ns;
    return dlab_run_add_memory(d->run, &e, err);
}

static dlab_status step_until_done(driver *d, dlab_error *err)
{
    const dlab_drive_opts *o = d->opts;
    while (d->target->ops->busy(d->target)) {
        dlab_step s = {0};
        int64_t begin_ns = dlab_clock_now_ns(d->clock);
        if (o->interrupted && *o->interrupted) return DLAB_FAIL(err, DLAB_EINTERRUPTED, "interrupted");
        DLAB_TRY(d->target->ops->step(d->target, &s, err));
        int64_t end_ns = dlab_clock_now_ns(d->clock);
        dlab_pulse_beat(o->pulse);
        d->run->t_end = since_start(d, end_ns);
        if (s.rows == 0 && s.n_tokens == 0) {
            return DLAB_FAIL(err, DLAB_EINTERNAL, "a step of target %s did nothing although requests wait",
                             d->target->ops->name);
        }
        double t_begin = since_start(d, begin_ns), t_end = since_start(d, end_ns);
        DLAB_TRY(add_admitted(d, &s, t_begin, err));
        DLAB_TRY(add_tokens(d, &s, t_end, err));
        DLAB_TRY(add_step(d, &s, t_begin, t_end, err));
        if (end_ns >= d->next_sample_ns) DLAB_TRY(add_memory(d, end_ns, err));
        /* at least one step, however short the limit: a run with no step at all would say nothing */
        if (o->time_limit_ns > 0 && end_ns - d->start_ns >= o->time_limit_ns && d->target->ops->busy(d->target)) {
            d->run->status = DLAB_RUN_TRUNCATED;
            return DLAB_OK;
        }
    }
    return DLAB_OK;
}

dlab_status dlab_drive(dlab_target *t, dlab_clock *clock, const dlab_requests *requests, const int32_t *handles,
                       const dlab_drive_opts *opts, dlab_run *out, dlab_error *err)
{
    uint64_t seed = (uint64_t)t->ops->plan(t)->sample_seed;
    driver d = {.target = t,
                .clock = clock,
                .opts = opts,
                .run = out,
                .first_request = out->n_requests,
                .n_requests = requests->n * samples_of(requests),
                .sample_seed = dlab_splitmix64(&seed)};
    DLAB_TRY(reserve(&d, requests, err));
    out->status = DLAB_RUN_OK;
    out->t_end = 0;
    d.start_ns = dlab_clock_now_ns(clock);
    DLAB_TRY(add_memory(&d, d.start_ns, err)); /* what is there before anything runs; not part of the time */
    d.start_ns = dlab_clock_now_ns(clock);
    dlab_status st = submit_all(&d, requests, handles, err);
    if (st == DLAB_OK) st = step_until_done(&d, err);
    t->ops->cancel(t); /* nothing is left after a whole run; after any other end the target must be idle again */
    return st;
}
