/* The engine's life, its sequences, and primed prefixes. */
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core.h"
#include "engine/model/arch.h"

/* cos and sin of every position and pair, in double, then rounded once. Llama 3 divides frequencies by rope_freqs. */
static dlab_status upload_rope(dlab_engine *e, dlab_error *err)
{
    const dlab_model_info *info = e->fwd.info;
    const dlab_tensor *factors = dlab_model_tensor(e->model, "rope_freqs.weight");
    int half = info->head_dim / 2;
    size_t bytes = e->plan.bytes[DLAB_BUFFER_ROPE];
    float *table = malloc(bytes);
    if (!table) return DLAB_FAIL(err, DLAB_EOOM, "engine: no memory for the RoPE table of %zu bytes", bytes);
    for (int i = 0; i < half; i++) {
        double freq = pow((double)info->rope_base, -2.0 * i / info->head_dim);
        if (factors) freq /= ((const float *)factors->data)[i];
        for (int64_t pos = 0; pos < e->plan.needs.max_tokens; pos++) {
            float *pair = table + (pos * half + i) * 2;
            pair[0] = (float)cos((double)pos * freq);
            pair[1] = (float)sin((double)pos * freq);
        }
    }
    dlab_device *dev = e->fwd.dev;
    dlab_status st = dev->ops->upload(dev, (dlab_at){e->fwd.buf[DLAB_BUFFER_ROPE], 0}, table, bytes, err);
    if (st == DLAB_OK) st = dev->ops->sync(dev, err);
    free(table);
    return st;
}

static dlab_status create_device(dlab_engine *e, dlab_error *err)
{
    const dlab_plan *p = &e->plan.plan;
    DLAB_TRY(dlab_mem_create((size_t)p->memory_limit_bytes, &e->mem, err));
    dlab_device_opts opts = {.threads = (int)p->threads, .isa = p->isa, .mem = e->mem};
    DLAB_TRY(dlab_device_open(p->device, &opts, &e->fwd.dev, err));
    dlab_device *dev = e->fwd.dev;
    const bool in_file = strcmp(p->weights_packed, "file") == 0;
    DLAB_TRY(dlab_weights_create(dev, &opts, e->model, in_file, &e->weights, err));
    for (int i = 0; i < DLAB_BUFFER_N; i++) {
        if (e->plan.bytes[i] == 0) continue;
        DLAB_TRY(dev->ops->alloc(dev, dlab_buffer_pool((dlab_buffer)i), e->plan.bytes[i], &e->fwd.buf[i], err));
    }
    e->plan.kv.dev = dev;
    DLAB_TRY(dlab_engine_swap_create(e, err));
    return e->plan.store->create(&e->plan.kv, &e->fwd.store, err);
}

static int64_t room_of(void *engine)
{
    const dlab_engine *e = engine;
    return e->fwd.store->ops->room(e->fwd.store);
}

static void set_up_batch(dlab_engine *e)
{
    const dlab_resolved *r = &e->plan;
    dlab_batch_state *st = &e->batch;
    st->n_seqs = (int)r->needs.max_seqs;
    st->retains = r->store->retains;
    st->batch_size = r->plan.batch_size;
    st->token_budget = r->row_budget;
    st->max_lengths = r->max_lengths;
    st->chunk = r->plan.batch_chunk > 0 ? r->plan.batch_chunk : r->needs.max_tokens;
    st->pad = strcmp(r->plan.batch_padding, "compute") == 0;
    st->open = dlab_engine_open_seq;
    st->close = dlab_engine_close_seq;
    st->release = dlab_engine_release_seq;
    st->room = room_of;
    st->looks_up = r->kv.prefix_cache;
    st->refused.order = -1;
    /* A pool without a bound of its own holds the whole batch at its longest: nobody is ever sent away. */
    st->slack = r->store->shares && r->kv.pool_bytes > 0 ? r->kv.block_tokens : 0;
    st->ctx = e;
}

static dlab_status create_host_side(dlab_engine *e, dlab_error *err)
{
    const dlab_resolved *r = &e->plan;
    size_t seqs = (size_t)r->needs.max_seqs, batch = (size_t)r->plan.batch_size, tokens = (size_t)r->needs.max_tokens;
    size_t logits = (size_t)r->max_logits;
    e->at_end = strcmp(r->plan.batch_release, "at_end") == 0;
    e->id_memory = malloc(seqs * (tokens + 1) * sizeof *e->id_memory); /* the last id is never fed back */
    e->batch.seqs = calloc(seqs, sizeof *e->batch.seqs);
    e->batch.admitted = malloc(batch * sizeof *e->batch.admitted);
    e->batch.admitted_cached = malloc(batch * sizeof *e->batch.admitted_cached);
    e->desc = malloc(r->bytes[DLAB_BUFFER_DESC]);
    e->slices = malloc(batch * sizeof *e->slices);
    e->tokens = malloc(batch * (e->at_end ? tokens : 1) * sizeof *e->tokens);
    e->origins = malloc(batch * (e->at_end ? tokens : 1) * sizeof *e->origins);
    e->sampled = malloc(logits * sizeof *e->sampled);
    e->logit_seq = malloc(logits * sizeof *e->logit_seq);
    e->watch = malloc((size_t)r->max_rows * sizeof *e->watch);
    e->span_off = calloc((size_t)dlab_span_tables(r), sizeof *e->span_off);
    e->fwd.span_off = e->span_off;
    if (!e->id_memory || !e->batch.seqs || !e->batch.admitted || !e->batch.admitted_cached || !e->desc || !e->slices ||
        !e->tokens || !e->origins || !e->sampled || !e->logit_seq || !e->watch || !e->span_off) {
        return DLAB_FAIL(err, DLAB_EOOM, "engine: no memory for %zu sequences of %zu tokens", seqs, tokens);
    }
    memset(e->desc, 0, r->bytes[DLAB_BUFFER_DESC]);
    for (size_t i = 0; i < seqs; i++) e->batch.seqs[i] = dlab_seq_none(e->id_memory + i * (tokens + 1));
    set_up_batch(e);
    const dlab_policy_opts opts = {.batch_size = r->plan.batch_size, .ageing = r->plan.batch_ageing};
    DLAB_TRY(dlab_queue_create(r->policy, &opts, &e->batch.queue, err));
    return r->batcher->create(&e->batch, &e->batcher, err);
}

dlab_status dlab_engine_create(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                               dlab_engine **out, dlab_error *err)
{
    *out = NULL;
    dlab_engine *e = calloc(1, sizeof *e);
    if (!e) return DLAB_FAIL(err, DLAB_EOOM, "engine: out of memory");
    e->model = m;
    dlab_status st;
    DLAB_TRY_DONE(st, dlab_plan_resolve(plan, m, needs, &e->plan, err));
    e->fwd.plan = &e->plan;
    e->fwd.info = dlab_model_get_info(m);
    e->fwd.weights = &e->weights;
    e->fwd.rope_norm = dlab_model_arch(m)->rope_norm;
    DLAB_TRY_DONE(st, create_device(e, err));
    DLAB_TRY_DONE(st, create_host_side(e, err));
    DLAB_TRY_DONE(st, upload_rope(e, err));
    *out = e;
done:
    if (st != DLAB_OK) dlab_engine_destroy(e);
    return st;
}

void dlab_engine_destroy(dlab_engine *e)
{
    if (!e) return;
    dlab_device *dev = e->fwd.dev;
    if (e->batcher) e->batcher->ops->destroy(e->batcher);
    if (e->fwd.store) e->fwd.store->ops->destroy(e->fwd.store);
    dlab_engine_swap_destroy(e);
    for (int i = 0; dev && i < DLAB_BUFFER_N; i++) {
        if (e->fwd.buf[i].ptr) dev->ops->free(dev, dlab_buffer_pool((dlab_buffer)i), e->fwd.buf[i]);
    }
    if (dev) dlab_weights_destroy(dev, &e->weights);
    dlab_device_close(dev);
    dlab_mem_destroy(e->mem);
    dlab_queue_destroy(&e->batch.queue);
    free(e->id_memory);
    free(e->batch.seqs);
    free(e->batch.admitted);
    free(e->batch.admitted_cached);
    free(e->desc);
    free(e->slices);
    free(e->tokens);
    free(e->origins);
    free(e->sampled);
    free(e->logit_seq);
    free(e->watch);
    free(e->span_off);
    free(e);
}

const dlab_plan *dlab_engine_plan(const dlab_engine *e) { return &e->plan.plan; }
void dlab_engine_memory(const dlab_engine *e, dlab_mem_stats *out) { dlab_mem_get_stats(e->mem, out); }
void dlab_engine_reset_peaks(dlab_engine *e) { dlab_mem_reset_peaks(e->mem); }

void dlab_engine_kv(const dlab_engine *e, dlab_kv_stats *out)
{
    e->fwd.store->ops->stats(e->fwd.store, out);
    out->asked_tokens = e->batch.asked_tokens;
    out->hit_tokens = e->batch.hit_tokens;
}

/* ---- sequences ---- */

/* Positions that a sequence will come to hold: its last token is never fed back. */
static int64_t positions(const dlab_engine *e, const dlab_seq *s, int64_t extra)
{
    int64_t all = s->n_ids + extra;
    const int64_t last = s->running ? s->n_ids - s->n_new + s->max_new - 1 : s->n_ids;
    if (all > last) all = last;
    if (all > e->plan.needs.max_tokens) all = e->plan.needs.max_tokens;
    return all > s->n_ids ? all : s->n_ids;
}

/* A place with room for len tokens; *n_held: those that it holds already, found in the cache or swapped in. */
static dlab_status take_place(dlab_engine *e, int seq, int64_t len, int64_t *n_held, dlab_error *err)
{
    const dlab_seq *s = &e->batch.seqs[seq];
    dlab_kv_store *store = e->fwd.store;
    const bool back = dlab_engine_is_swapped(e, seq);
    if (!s->primed) DLAB_TRY(store->ops->open(store, seq, s->ids, back ? 0 : s->n_ids, n_held, err));
    dlab_status st = store->ops->extend(store, seq, len, len, err);
    if (st == DLAB_OK && back) st = dlab_engine_swap_in(e, seq, n_held, err);
    if (st != DLAB_OK && !s->primed) store->ops->close(store, seq);
    return st;
}

dlab_status dlab_engine_open_seq(void *engine, int seq, int64_t extra, dlab_error *err)
{
    dlab_engine *e = engine;
    dlab_seq *s = &e->batch.seqs[seq];
    const bool kept = s->primed && !dlab_engine_is_swapped(e, seq);
    int64_t held = 0;
    DLAB_TRY(take_place(e, seq, positions(e, s, extra), &held, err));
    if (!kept) {
        s->n_live = held;
        /* A request needs the logits of its last token, though K and V of it may be there. */
        s->n_stored = s->running && held == s->n_ids ? held - 1 : held;
    }
    s->open = s->held = true;
    return DLAB_OK;
}

/* A primed sequence keeps its prefix, and its place. */
static void rewind_primed(dlab_engine *e, int seq)
{
    dlab_seq *s = &e->batch.seqs[seq];
    e->fwd.store->ops->rewind(e->fwd.store, seq, NULL); /* copies within memory that it has */
    if (s->n_stored > s->n_primed) s->n_stored = s->n_primed;
    s->n_live = e->batch.retains ? s->n_stored : 0;
}

dlab_status dlab_engine_release_seq(void *engine, int seq, dlab_error *err)
{
    dlab_engine *e = engine;
    dlab_seq *s = &e->batch.seqs[seq];
    if (s->finish != DLAB_FINISH_NONE) dlab_engine_swap_drop(e, seq);
    if (!s->held) return DLAB_OK;
    DLAB_TRY(dlab_engine_swap_out(e, seq, err));
    s->held = false;
    if (s->primed) {
        rewind_primed(e, seq);
        return DLAB_OK;
    }
    e->fwd.store->ops->close(e->fwd.store, seq);
    s->n_stored = s->n_live = 0;
    return DLAB_OK;
}

void dlab_engine_close_seq(void *engine, int seq)
{
    dlab_engine *e = engine;
    dlab_seq *s = &e->batch.seqs[seq];
    dlab_engine_swap_drop(e, seq);
    if (!s->primed) {
        if (s->held) e->fwd.store->ops->close(e->fwd.store, seq);
        *s = dlab_seq_none(s->ids);
        return;
    }
    rewind_primed(e, seq);
    s->held = true;
    s->running = false;
    s->finish = DLAB_FINISH_NONE;
    s->n_ids = s->n_primed;
    s->n_new = 0;
    s->leader = -1;
}

/* ---- primed sequences ---- */

static dlab_status prefill_alone(dlab_engine *e, int seq, dlab_error *err)
{
    dlab_step_want want = {.want = DLAB_WANT_NONE};
    while (e->batch.retains && e->batch.seqs[seq].n_stored < e->batch.seqs[seq].n_ids) {
        dlab_step_work work;
        dlab_slice slice = dlab_step_next_slice(e, seq);
        DLAB_TRY(dlab_step_reserve(e, &slice, 1, err));
        DLAB_TRY(dlab_step_execute(e, &slice, 1, &want, &work, err));
    }
    return e->fwd.store->ops->mark(e->fwd.store, seq, err);
}

dlab_status dlab_engine_prime(dlab_engine *e, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err)
{
    *handle = -1;
    int seq = dlab_batch_free_seq(&e->batch, -1);
    if (seq < 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "all %d sequences are taken: no place for a cached prefix",
                         e->batch.n_seqs);
    }
    dlab_engine_request probe = {.prompt = ids, .n_prompt = n, .max_new = 1, .primed = -1};
    DLAB_TRY(dlab_engine_check_request(e, &probe, err));
    dlab_seq *s = &e->batch.seqs[seq];
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    s->n_ids = n;
    dlab_status st = dlab_engine_open_seq(e, seq, 0, err);
    if (st == DLAB_OK) st = prefill_alone(e, seq, err);
    if (st != DLAB_OK) {
        dlab_engine_close_seq(e, seq);
        return st;
    }
    s->n_primed = n;
    s->primed = true;
    *handle = seq;
    return DLAB_OK;
}

void dlab_engine_unprime(dlab_engine *e)
{
    for (int i = 0; i < e->batch.n_seqs; i++) {
        if (!e->batch.seqs[i].primed) continue;
        e->batch.seqs[i].primed = false;
        dlab_engine_close_seq(e, i);
    }
}
