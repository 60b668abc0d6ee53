/* The engine's life, its queue, and primed sequences. */
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
    return e->plan.store->create(&e->plan.kv, &e->fwd.store, err);
}

static int64_t room_of(void *engine)
{
    const dlab_engine *e = engine;
    return e->fwd.store->ops->room(e->fwd.store);
}

static dlab_status create_host_side(dlab_engine *e, dlab_error *err)
{
    const dlab_resolved *r = &e->plan;
    size_t seqs = (size_t)r->needs.max_seqs, batch = (size_t)r->plan.batch_size, tokens = (size_t)r->needs.max_tokens;
    size_t logits = (size_t)r->max_logits;
    e->id_memory = malloc(seqs * (tokens + 1) * sizeof *e->id_memory); /* the last id is never fed back */
    e->batch.seqs = calloc(seqs, sizeof *e->batch.seqs);
    e->batch.admitted = malloc(batch * sizeof *e->batch.admitted);
    e->batch.admitted_cached = malloc(batch * sizeof *e->batch.admitted_cached);
    e->desc = malloc(r->bytes[DLAB_BUFFER_DESC]);
    e->slices = malloc(batch * sizeof *e->slices);
    e->tokens = malloc(batch * sizeof *e->tokens);
    e->sampled = malloc(logits * sizeof *e->sampled);
    e->logit_seq = malloc(logits * sizeof *e->logit_seq);
    e->watch = malloc((size_t)r->max_rows * sizeof *e->watch);
    e->span_off = calloc((size_t)dlab_span_tables(r), sizeof *e->span_off);
    e->fwd.span_off = e->span_off;
    if (!e->id_memory || !e->batch.seqs || !e->batch.admitted || !e->batch.admitted_cached || !e->desc || !e->slices ||
        !e->tokens || !e->sampled || !e->logit_seq || !e->watch || !e->span_off) {
        return DLAB_FAIL(err, DLAB_EOOM, "engine: no memory for %zu sequences of %zu tokens", seqs, tokens);
    }
    memset(e->desc, 0, r->bytes[DLAB_BUFFER_DESC]);
    for (size_t i = 0; i < seqs; i++) e->batch.seqs[i] = dlab_seq_none(e->id_memory + i * (tokens + 1));
    e->batch.n_seqs = (int)seqs;
    e->batch.retains = r->store->retains;
    e->batch.batch_size = r->plan.batch_size;
    e->batch.token_budget = r->plan.batch_token_budget > 0 ? r->plan.batch_token_budget : r->max_rows;
    e->batch.chunk = r->plan.batch_chunk > 0 ? r->plan.batch_chunk : r->needs.max_tokens;
    e->batch.pad = strcmp(r->plan.batch_padding, "compute") == 0;
    e->batch.open = dlab_engine_open_seq;
    e->batch.close = dlab_engine_close_seq;
    e->batch.release = dlab_engine_release_seq;
    e->batch.room = room_of;
    e->batch.looks_up = r->kv.prefix_cache;
    e->batch.slack = r->store->shares ? r->kv.block_tokens : 0;
    e->batch.ctx = e;
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

static void free_list(dlab_queued *q)
{
    while (q) {
        dlab_queued *next = q->next;
        free(q);
        q = next;
    }
}

void dlab_engine_destroy(dlab_engine *e)
{
    if (!e) return;
    dlab_device *dev = e->fwd.dev;
    if (e->batcher) e->batcher->ops->destroy(e->batcher);
    if (e->fwd.store) e->fwd.store->ops->destroy(e->fwd.store);
    for (int i = 0; dev && i < DLAB_BUFFER_N; i++) {
        if (e->fwd.buf[i].ptr) dev->ops->free(dev, dlab_buffer_pool((dlab_buffer)i), e->fwd.buf[i]);
    }
    if (dev) dlab_weights_destroy(dev, &e->weights);
    dlab_device_close(dev);
    dlab_mem_destroy(e->mem);
    free_list(e->batch.head);
    free_list(e->batch.spare);
    free(e->id_memory);
    free(e->batch.seqs);
    free(e->batch.admitted);
    free(e->batch.admitted_cached);
    free(e->desc);
    free(e->slices);
    free(e->tokens);
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

int dlab_engine_free_seq(const dlab_engine *e)
{
    for (int i = 0; i < e->batch.n_seqs; i++) {
        if (!e->batch.seqs[i].open) return i;
    }
    return -1;
}

/* Positions that a sequence will come to hold: its last token is never fed back. */
static int64_t positions(const dlab_engine *e, const dlab_seq *s, int64_t extra)
{
    int64_t all = s->n_ids + extra;
    const int64_t last = s->running ? s->n_ids - s->n_new + s->max_new - 1 : s->n_ids;
    if (all > last) all = last;
    if (all > e->plan.needs.max_tokens) all = e->plan.needs.max_tokens;
    return all > s->n_ids ? all : s->n_ids;
}

dlab_status dlab_engine_open_seq(void *engine, int seq, int64_t extra, dlab_error *err)
{
    dlab_engine *e = engine;
    dlab_seq *s = &e->batch.seqs[seq];
    dlab_kv_store *store = e->fwd.store;
    const int64_t len = positions(e, s, extra);
    if (s->primed) {
        DLAB_TRY(store->ops->extend(store, seq, len, len, err));
    } else {
        int64_t cached = 0;
        DLAB_TRY(store->ops->open(store, seq, s->ids, s->n_ids, &cached, err));
        const dlab_status st = store->ops->extend(store, seq, len, len, err);
        if (st != DLAB_OK) {
            store->ops->close(store, seq);
            return st;
        }
        s->n_live = cached;
        /* A request needs the logits of its last token, though K and V of it may be there. */
        s->n_stored = s->running && cached == s->n_ids ? cached - 1 : cached;
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

void dlab_engine_release_seq(void *engine, int seq)
{
    dlab_engine *e = engine;
    dlab_seq *s = &e->batch.seqs[seq];
    s->held = false;
    if (s->primed) {
        rewind_primed(e, seq);
        return;
    }
    e->fwd.store->ops->close(e->fwd.store, seq);
    s->n_stored = s->n_live = 0;
}

void dlab_engine_close_seq(void *engine, int seq)
{
    dlab_engine *e = engine;
    dlab_seq *s = &e->batch.seqs[seq];
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

/* ---- requests ---- */

static dlab_status check_samples(const dlab_engine *e, const dlab_engine_request *r, dlab_error *err)
{
    if (r->samples < 0 || r->samples > e->plan.plan.batch_size || r->samples > e->batch.n_seqs) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "request %lld: %d samples take as many places of the batch, which has %lld (batch.size)",
                         (long long)r->id, r->samples, (long long)e->plan.plan.batch_size);
    }
    if (r->samples > 1 && r->primed >= 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "request %lld: a cached prefix belongs to one sequence, not to %d samples", (long long)r->id,
                         r->samples);
    }
    return DLAB_OK;
}

/* Against what the engine was made for, and against the whole pool. */
static dlab_status check_length(const dlab_engine *e, const dlab_engine_request *r, int64_t primed, dlab_error *err)
{
    const int64_t total = primed + r->n_prompt + r->max_new - 1; /* the last token produced is never fed back */
    const int64_t pool = e->fwd.store->ops->capacity(e->fwd.store);
    const bool by_pool = pool < e->plan.needs.max_tokens;
    const int64_t room = by_pool ? pool : e->plan.needs.max_tokens;
    if (total <= room) return DLAB_OK;
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "request %lld: %lld cached + %lld prompt + %lld new tokens, the last not fed back: %lld positions, "
        "room for %lld%s",
        (long long)r->id, (long long)primed, (long long)r->n_prompt, (long long)r->max_new, (long long)total,
        (long long)room, by_pool ? " in the whole pool (kv.pool)" : "");
}

static dlab_status check_request(const dlab_engine *e, const dlab_engine_request *r, dlab_error *err)
{
    int64_t primed = 0;
    if (r->primed >= 0) {
        if (r->primed >= e->batch.n_seqs || !e->batch.seqs[r->primed].primed) {
            return DLAB_FAIL(err, DLAB_EUSAGE, "request %lld: %d is not a primed sequence", (long long)r->id,
                             r->primed);
        }
        primed = e->batch.seqs[r->primed].n_primed;
    }
    if (r->n_prompt < 1 || r->max_new < 1) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "request %lld: a prompt of %lld tokens and %lld new ones; both must be at least 1",
                         (long long)r->id, (long long)r->n_prompt, (long long)r->max_new);
    }
    DLAB_TRY(check_samples(e, r, err));
    DLAB_TRY(check_length(e, r, primed, err));
    for (int64_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= e->fwd.info->vocab) {
            return DLAB_FAIL(err, DLAB_EUSAGE, "request %lld: prompt token %lld is %d, outside the vocabulary of %d",
                             (long long)r->id, (long long)i, r->prompt[i], e->fwd.info->vocab);
        }
    }
    return DLAB_OK;
}

/* A node that is large enough, from the spare ones or new. */
static dlab_queued *take_node(dlab_batch_state *st, int64_t n_prompt)
{
    for (dlab_queued **p = &st->spare; *p; p = &(*p)->next) {
        if ((*p)->cap < n_prompt) continue;
        dlab_queued *q = *p;
        *p = q->next;
        return q;
    }
    dlab_queued *q = malloc(sizeof *q + (size_t)n_prompt * sizeof q->prompt[0]);
    if (q) q->cap = n_prompt;
    return q;
}

dlab_status dlab_engine_submit(dlab_engine *e, const dlab_engine_request *r, dlab_error *err)
{
    DLAB_TRY(check_request(e, r, err));
    dlab_queued *q = take_node(&e->batch, r->n_prompt);
    if (!q) return DLAB_FAIL(err, DLAB_EOOM, "request %lld: no memory for its prompt", (long long)r->id);
    q->next = NULL;
    q->request = *r;
    q->request.prompt = q->prompt;
    memcpy(q->prompt, r->prompt, (size_t)r->n_prompt * sizeof *q->prompt);
    if (e->batch.tail)
        e->batch.tail->next = q;
    else
        e->batch.head = q;
    e->batch.tail = q;
    return DLAB_OK;
}

bool dlab_engine_busy(const dlab_engine *e)
{
    if (e->batch.head) return true;
    for (int i = 0; i < e->batch.n_seqs; i++) {
        if (e->batch.seqs[i].running && e->batch.seqs[i].finish == DLAB_FINISH_NONE) return true;
    }
    return false;
}

void dlab_engine_cancel(dlab_engine *e)
{
    while (e->batch.head) {
        dlab_queued *q = e->batch.head;
        e->batch.head = q->next;
        q->next = e->batch.spare;
        e->batch.spare = q;
    }
    e->batch.tail = NULL;
    for (int i = 0; i < e->batch.n_seqs; i++) {
        if (e->batch.seqs[i].running) dlab_engine_close_seq(e, i);
    }
    e->batcher->ops->reset(e->batcher);
    e->fwd.store->ops->reset(e->fwd.store);
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
    int seq = dlab_engine_free_seq(e);
    if (seq < 0) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "all %d sequences are taken: no place for a cached prefix",
                         e->batch.n_seqs);
    }
    dlab_engine_request probe = {.prompt = ids, .n_prompt = n, .max_new = 1, .primed = -1};
    DLAB_TRY(check_request(e, &probe, err));
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
