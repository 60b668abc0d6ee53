/* One step: slices → rows in the descriptor → ops → what is stored and what came out. */
#include <string.h>

#include "base/int.h"
#include "base/rng.h"
#include "engine/core.h"

/* The draw of token `index` of a request depends on its seed and the index alone, not on its neighbours. */
static uint64_t draw_of(uint64_t seed, int64_t index)
{
    uint64_t state = seed + (uint64_t)index * 0x9E3779B97F4A7C15u;
    return dlab_splitmix64(&state);
}

typedef struct {
    dlab_engine *e;
    const dlab_step_want *want;
    dlab_desc_row *rows;
    dlab_desc_seq *seqs;
    dlab_desc_seg *segs;
    dlab_desc_logit *logits;
    dlab_step_work *work;
} builder;

/* Tokens that the store holds of the slice's sequence once its rows are written. */
static int64_t held_after(const dlab_engine *e, const dlab_slice *sl)
{
    return dlab_max_i64(e->batch.seqs[sl->seq].n_live, sl->n_rows > 0 ? sl->first + sl->n_rows : 0);
}

/* Positions that the slice's rows look at. */
static int64_t slice_len(const dlab_slice *sl)
{
    return dlab_max_i64(sl->n_pad > 0 ? sl->pad_pos + sl->n_pad : 0, sl->n_rows > 0 ? sl->first + sl->n_rows : 0);
}

/* Of the row that comes next, for sequence seq: itself, or one that waits to be forked from it and draws for itself. */
static void add_logit(builder *b, int seq, int32_t target)
{
    const dlab_seq *s = &b->e->batch.seqs[seq];
    dlab_desc_head *d = b->e->desc;
    b->logits[d->n_logits] = (dlab_desc_logit){.row = d->n_rows,
                                               .target = target,
                                               .draw = draw_of(s->seed, s->n_new),
                                               .temperature = s->temperature,
                                               .top_p = s->top_p,
                                               .top_k = s->top_k};
    b->e->logit_seq[d->n_logits++] = seq;
}

static void add_rows(builder *b, const dlab_slice *sl, int32_t seq_index)
{
    dlab_engine *e = b->e;
    const dlab_seq *s = &e->batch.seqs[sl->seq];
    dlab_desc_head *d = e->desc;
    for (int32_t i = 0; i < sl->n_pad; i++) {
        b->rows[d->n_rows++] =
            (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = (int32_t)(sl->pad_pos + i), .seq = seq_index};
    }
    for (int32_t i = 0; i < sl->n_rows; i++) {
        int64_t pos = sl->first + i;
        dlab_desc_row *r = &b->rows[d->n_rows];
        *r = (dlab_desc_row){.token = s->ids[pos], .pos = (int32_t)pos, .seq = seq_index};
        e->fwd.store->ops->place(e->fwd.store, sl->seq, pos, r);
        const bool last = pos + 1 == s->n_ids;
        if (b->want->want == DLAB_WANT_SCORE && pos >= b->want->from) {
            add_logit(b, sl->seq, last ? -1 : s->ids[pos + 1]);
        } else if (b->want->want == DLAB_WANT_SAMPLE && last) {
            add_logit(b, sl->seq, -1);
            for (int f = 0; s->n_new == 0 && f < e->batch.n_seqs; f++) {
                if (e->batch.seqs[f].running && e->batch.seqs[f].leader == sl->seq) add_logit(b, f, -1);
            }
        }
        d->n_rows++;
    }
}

static void add_slice(builder *b, const dlab_slice *sl)
{
    dlab_engine *e = b->e;
    dlab_desc_head *d = e->desc;
    int64_t len = slice_len(sl);
    dlab_desc_seq *q = &b->seqs[d->n_seqs];
    *q = (dlab_desc_seq){
        .row_begin = d->n_rows, .n_rows = sl->n_pad + sl->n_rows, .seg_begin = d->n_segs, .len = (int32_t)len};
    q->n_segs = e->fwd.store->ops->segments(e->fwd.store, sl->seq, len, b->segs + d->n_segs);
    e->fwd.store->ops->tails(e->fwd.store, sl->seq, held_after(e, sl), q);
    d->n_segs += q->n_segs;
    add_rows(b, sl, d->n_seqs++);
    if (len > b->work->max_len) b->work->max_len = (int32_t)len;
    b->work->rows += sl->n_pad + sl->n_rows;
    b->work->pad_rows += sl->n_pad;
    *(e->batch.seqs[sl->seq].n_new == 0 ? &b->work->prefill_rows : &b->work->decode_rows) += sl->n_rows;
}

/* The arrays follow the head without gaps, so that a small step uploads little. What is largest and known last comes last:
 * segments, of which each sequence may have many, and spans. */
static builder begin_descriptor(dlab_engine *e, const dlab_slice *slices, int n, const dlab_step_want *want,
                                dlab_step_work *work)
{
    dlab_desc_head *d = e->desc;
    size_t rows = 0;
    for (int i = 0; i < n; i++) rows += (size_t)(slices[i].n_pad + slices[i].n_rows);
    /* A row may have several logits, one for each sample that waits to be forked from it. */
    const int64_t asked = want->want == DLAB_WANT_SCORE ? (int64_t)rows : e->plan.plan.batch_size;
    const size_t logits = (size_t)dlab_min_i64(asked, e->plan.max_logits);
    *d = (dlab_desc_head){.row_off = sizeof *d};
    d->seq_off = d->row_off + (uint32_t)(rows * sizeof(dlab_desc_row));
    d->logit_off = d->seq_off + (uint32_t)((size_t)n * sizeof(dlab_desc_seq));
    d->seg_off = d->logit_off + (uint32_t)(logits * sizeof(dlab_desc_logit));
    char *base = (char *)d;
    return (builder){
        .e = e,
        .want = want,
        .rows = (dlab_desc_row *)(base + d->row_off),
        .seqs = (dlab_desc_seq *)(base + d->seq_off),
        .segs = (dlab_desc_seg *)(base + d->seg_off),
        .logits = (dlab_desc_logit *)(base + d->logit_off),
        .work = work,
    };
}

/* Tables of spans behind the segments: one for all layers, or one for each. Returns the descriptor's bytes. */
static size_t add_spans(builder *b)
{
    dlab_engine *e = b->e;
    const dlab_resolved *p = &e->plan;
    const dlab_desc_head *d = e->desc;
    size_t at = d->seg_off + (size_t)d->n_segs * sizeof(dlab_desc_seg);
    if (p->pattern->dense) return at;
    const int32_t tables = dlab_span_tables(p), heads = dlab_span_heads(p);
    for (int32_t layer = 0; layer < tables; layer++) {
        e->span_off[layer] = at;
        int32_t *first = (int32_t *)(void *)((char *)e->desc + at);
        dlab_span *out = (dlab_span *)(void *)(first + (size_t)d->n_rows * (size_t)heads + 1);
        int32_t n = 0, list = 0;
        for (int32_t r = 0; r < d->n_rows; r++) {
            for (int32_t g = 0; g < heads; g++) {
                first[list++] = n;
                n += p->pattern->spans(&p->pattern_opts, layer, g, b->rows[r].pos, out + n);
            }
        }
        first[list] = n;
        at = (size_t)((char *)(out + n) - (char *)e->desc);
    }
    return at;
}

dlab_status dlab_step_reserve(dlab_engine *e, const dlab_slice *slices, int n, dlab_error *err)
{
    dlab_kv_store *store = e->fwd.store;
    for (int i = 0; i < n; i++) {
        const dlab_slice *sl = &slices[i];
        DLAB_TRY(store->ops->extend(store, sl->seq, held_after(e, sl), slice_len(sl), err));
    }
    return DLAB_OK;
}

static dlab_status check_size(const dlab_engine *e, const dlab_slice *slices, int n, dlab_error *err)
{
    int64_t rows = 0, longest = 0;
    for (int i = 0; i < n; i++) {
        rows += slices[i].n_pad + slices[i].n_rows;
        longest = dlab_max_i64(longest, slice_len(&slices[i]));
    }
    if (rows <= e->plan.max_rows && n <= e->plan.plan.batch_size && longest <= e->plan.needs.max_tokens) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL,
                     "a step of %lld rows in %d slices up to position %lld, made for %lld in %lld up to %lld",
                     (long long)rows, n, (long long)longest, (long long)e->plan.max_rows,
                     (long long)e->plan.plan.batch_size, (long long)e->plan.needs.max_tokens);
}

/* Rows in which something other than a finite number came up; padding may look at memory that was never written. */
static int32_t count_nonfinite(const dlab_engine *e, const dlab_slice *slices, int n)
{
    int32_t bad = 0;
    const int32_t *row = e->watch;
    for (int i = 0; i < n; i++) {
        row += slices[i].n_pad;
        for (int32_t k = 0; k < slices[i].n_rows; k++) bad += *row++ != 0;
    }
    return bad;
}

static void commit(dlab_engine *e, const dlab_slice *sl)
{
    dlab_seq *s = &e->batch.seqs[sl->seq];
    if (sl->n_rows == 0) return;
    s->n_stored = sl->first + sl->n_rows;
    if (!e->batch.retains || s->n_stored <= s->n_live) return;
    s->n_live = s->n_stored;
    e->fwd.store->ops->commit(e->fwd.store, sl->seq, s->ids, s->n_live);
}

dlab_status dlab_step_execute(dlab_engine *e, const dlab_slice *slices, int n, const dlab_step_want *want,
                              dlab_step_work *work, dlab_error *err)
{
    *work = (dlab_step_work){0};
    DLAB_TRY(check_size(e, slices, n, err));
    builder b = begin_descriptor(e, slices, n, want, work);
    for (int i = 0; i < n; i++) add_slice(&b, &slices[i]);
    const size_t bytes = add_spans(&b);
    DLAB_TRY(dlab_forward(&e->fwd, e->desc, bytes, work->max_len, want->want, want->logits, &work->cost, err));
    dlab_device *dev = e->fwd.dev;
    if (e->desc->n_logits > 0) {
        DLAB_TRY(dev->ops->download(dev, e->sampled, (dlab_at){e->fwd.buf[DLAB_BUFFER_TOKENS], 0},
                                    (size_t)e->desc->n_logits * sizeof *e->sampled, err));
    }
    DLAB_TRY(dev->ops->download(dev, e->watch, (dlab_at){e->fwd.buf[DLAB_BUFFER_WATCH], 0},
                                (size_t)e->desc->n_rows * sizeof *e->watch, err));
    DLAB_TRY(dev->ops->sync(dev, err));
    work->nonfinite_rows = count_nonfinite(e, slices, n);
    for (int i = 0; i < n; i++) commit(e, &slices[i]);
    return DLAB_OK;
}

dlab_slice dlab_step_next_slice(const dlab_engine *e, int seq)
{
    const dlab_seq *s = &e->batch.seqs[seq];
    int64_t rows = dlab_seq_due(&e->batch, s), max = e->plan.max_rows,
            room = e->batch.chunk < e->batch.token_budget ? e->batch.chunk : e->batch.token_budget;
    return (dlab_slice){
        .seq = seq, .first = s->n_ids - rows, .n_rows = (int32_t)dlab_min_i64(rows, dlab_min_i64(room, max))};
}

static dlab_status take_token(dlab_engine *e, int i, dlab_error *err)
{
    dlab_seq *s = &e->batch.seqs[e->logit_seq[i]];
    int32_t token = e->sampled[i];
    if (token < 0 || token >= e->fwd.info->vocab) {
        return DLAB_FAIL(
            err, DLAB_EFORMAT,
            "request %lld: the logits of token %lld are not numbers: the model's weights or a kernel are broken",
            (long long)s->request, (long long)s->n_new);
    }
    s->ids[s->n_ids++] = token;
    e->batch.n_prompts += s->n_new == 0;
    e->origins[e->n_kept] = s->origin;
    dlab_step_token *out = &e->tokens[e->n_kept++];
    *out = (dlab_step_token){.request = s->request, .token = token, .index = (int32_t)s->n_new++};
    if (s->eos >= 0 && token == s->eos)
        dlab_batch_end(&e->batch, s, DLAB_FINISH_EOS);
    else if (s->n_new == s->max_new)
        dlab_batch_end(&e->batch, s, DLAB_FINISH_LENGTH);
    out->finish = s->finish;
    return DLAB_OK;
}

static int live_seqs(const dlab_engine *e)
{
    int live = 0;
    for (int i = 0; i < e->batch.n_seqs; i++) {
        const dlab_seq *s = &e->batch.seqs[i];
        live += s->running && s->held && s->finish == DLAB_FINISH_NONE;
    }
    return live;
}

/* A sequence that has ended holds its place until its batch lets go of it, but no live token. */
static void retire_ended(dlab_engine *e)
{
    for (int i = 0; i < e->desc->n_logits; i++) {
        const int seq = e->logit_seq[i];
        dlab_seq *s = &e->batch.seqs[seq];
        if (s->finish == DLAB_FINISH_NONE || !s->held) continue;
        s->n_live = 0;
        e->fwd.store->ops->retire(e->fwd.store, seq);
    }
}

/* A sample that has waited for its leader's prompt goes on from it. Without a place now, it is like one that was preempted. */
static dlab_status fork_follower(dlab_engine *e, int seq, dlab_error *err)
{
    dlab_seq *s = &e->batch.seqs[seq];
    if (s->leader < 0) return DLAB_OK;
    const dlab_seq *leader = &e->batch.seqs[s->leader];
    dlab_kv_store *store = e->fwd.store;
    const dlab_status st = store->ops->fork(store, s->leader, seq, e->batch.retains ? s->n_ids : 0, err);
    s->leader = -1;
    if (st == DLAB_EFULL) return DLAB_OK;
    DLAB_TRY(st);
    s->held = true;
    s->n_stored = leader->n_stored;
    s->n_live = leader->n_live;
    return DLAB_OK;
}

/* The request that has waited longest: in the batch without a place, else at the head of the queue. */
static int64_t waiting(const dlab_engine *e)
{
    for (int i = 0; i < e->batch.n_seqs; i++) {
        const dlab_seq *s = &e->batch.seqs[i];
        if (s->running && !s->held && s->finish == DLAB_FINISH_NONE) return s->request;
    }
    const dlab_queued *q = dlab_queue_first(&e->batch.queue);
    return q ? q->request.id : -1;
}

/* Takes a sequence's place, for it to come back later. */
static dlab_status preempt(dlab_engine *e, int seq, dlab_step *out, dlab_error *err)
{
    out->preempted += e->batch.seqs[seq].finish == DLAB_FINISH_NONE;
    e->batch.full = true;
    return dlab_engine_release_seq(e, seq, err);
}

/* Asks the batcher for slices until the store has room for them. */
static dlab_status choose(dlab_engine *e, int *n, dlab_step *out, dlab_error *err)
{
    e->batch.full = false;
    for (;;) {
        e->batch.pad_skipped = 0;
        DLAB_TRY(e->batcher->ops->next(e->batcher, &e->batch, e->slices, n, err));
        if (*n == 0) {
            return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                             "request %lld waits, and what holds the cache will never end: cached prefixes fill the %d "
                             "sequences or the pool (kv.pool)",
                             (long long)waiting(e), e->batch.n_seqs);
        }
        const dlab_status st = dlab_step_reserve(e, e->slices, *n, err);
        if (st != DLAB_EFULL) return st;
        const int victim = e->batcher->ops->victim(e->batcher, &e->batch);
        if (victim < 0) return st;
        DLAB_TRY(preempt(e, victim, out, err));
    }
}

static void report(const dlab_engine *e, const dlab_step_work *work, dlab_step *out)
{
    out->rows = work->rows;
    out->prefill_rows = work->prefill_rows;
    out->decode_rows = work->decode_rows;
    out->pad_rows = work->pad_rows;
    out->nonfinite_rows = work->nonfinite_rows;
    out->bytes = work->cost.bytes_read + work->cost.bytes_written;
    out->kv_bytes = work->cost.kv_bytes;
    out->kv_dense_bytes = work->cost.kv_dense_bytes;
    out->inter_bytes = work->cost.inter_bytes;
    out->flops = work->cost.flops;
    out->int8_flops = work->cost.int8_flops;
    out->bf16_flops = work->cost.bf16_flops;
    dlab_engine_kv(e, &out->kv);
}

/* Hands over what was produced; with batch.release: at_end, only when nobody of the batch is left. */
static void hand_over(dlab_engine *e, dlab_step *out)
{
    if (e->at_end && e->batch.n_live > 0) return;
    out->n_tokens = (int32_t)e->n_kept;
    e->n_kept = 0;
}

/* Slices → rows → tokens. */
static dlab_status run_step(dlab_engine *e, dlab_step *out, dlab_error *err)
{
    int n = 0;
    DLAB_TRY(choose(e, &n, out, err));
    out->n_admitted = e->batch.n_admitted;
    out->pad_skipped = (int32_t)e->batch.pad_skipped;
    dlab_step_work work;
    dlab_step_want want = {.want = DLAB_WANT_SAMPLE};
    out->seqs = live_seqs(e);
    DLAB_TRY(dlab_step_execute(e, e->slices, n, &want, &work, err));
    e->n_steps++;
    report(e, &work, out);
    for (int i = 0; i < e->desc->n_logits; i++) {
        DLAB_TRY(fork_follower(e, e->logit_seq[i], err));
        DLAB_TRY(take_token(e, i, err));
    }
    retire_ended(e);
    e->batcher->ops->settle(e->batcher, &e->batch);
    out->growths = (int32_t)(out->kv.n_growths - e->growths_seen);
    e->growths_seen = out->kv.n_growths;
    out->swapped_out = e->swapped.n_out;
    out->swapped_in = e->swapped.n_in;
    out->swap_bytes = e->swapped.bytes;
    memset(&e->swapped, 0, sizeof e->swapped);
    return DLAB_OK;
}

dlab_status dlab_engine_step(dlab_engine *e, dlab_step *out, dlab_error *err)
{
    const dlab_batch_state *st = &e->batch;
    *out = (dlab_step){.tokens = e->tokens,
                       .admitted = st->admitted,
                       .admitted_cached = st->admitted_cached,
                       .slots = (int32_t)e->plan.plan.batch_size,
                       .budget = (int32_t)e->plan.asked_budget,
                       .waiting = (int32_t)dlab_min_i64(st->queue.n_places, INT32_MAX)};
    e->batch.n_admitted = 0;
    const uint64_t launches = e->fwd.dev->ops->launches(e->fwd.dev);
    /* Of a batch whose last one was given up, what the others had is still to be handed over. */
    const bool left_over = e->n_kept > 0 && st->n_live == 0;
    if (!left_over && (st->n_live > 0 || (st->queue.n > 0 && !st->shut))) DLAB_TRY(run_step(e, out, err));
    hand_over(e, out);
    out->launches = (int64_t)(e->fwd.dev->ops->launches(e->fwd.dev) - launches);
    return DLAB_OK;
}
