/* B1: a static batch. batch.size requests start together, their prompts padded on the left to the longest, and all places
 * are released together when the longest request has ended. Padding is computed (what the padded tensors of most
 * frameworks do) or skipped, by batch.padding. */
#include <stdlib.h>

#include "base/int.h"
#include "engine/batch/batcher.h"

extern const dlab_batcher_ops dlab_batcher_static;

typedef struct {
    int seq;
    int64_t pads_left, pads_done; /* of the prompt */
    int32_t pads_now;             /* in the step that was last proposed */
} member;

typedef struct {
    dlab_batcher base;
    int n;
    int *admitted;  /* [batch_size] */
    member group[]; /* [batch_size], the oldest first */
} fixed;

static dlab_status create(const dlab_batch_state *st, dlab_batcher **out, dlab_error *err)
{
    *out = NULL;
    const size_t size = (size_t)st->batch_size;
    fixed *b = calloc(1, sizeof *b + size * (sizeof b->group[0] + sizeof *b->admitted));
    if (!b) return DLAB_FAIL(err, DLAB_EOOM, "static batcher: out of memory");
    b->base.ops = &dlab_batcher_static;
    b->admitted = (int *)(void *)&b->group[size];
    *out = &b->base;
    return DLAB_OK;
}

static void destroy(dlab_batcher *b) { free(b); }
static void reset(dlab_batcher *b) { ((fixed *)b)->n = 0; }

static dlab_seq *seq_of(const dlab_batch_state *st, const member *m) { return &st->seqs[m->seq]; }

/* Has its place and something to compute. */
static bool runs(const dlab_seq *s) { return s->held && s->leader < 0 && s->finish == DLAB_FINISH_NONE; }

static int64_t longest_due(const fixed *b, const dlab_batch_state *st)
{
    int64_t longest = 0;
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = seq_of(st, &b->group[i]);
        int64_t due = runs(s) ? dlab_seq_due(st, s) : 0;
        if (due > longest) longest = due;
    }
    return longest;
}

static dlab_status admit_group(fixed *b, dlab_batch_state *st, dlab_error *err)
{
    int n = 0, before;
    do {
        before = n;
        DLAB_TRY(dlab_batch_admit(st, b->admitted, &n, err));
    } while (n > before);
    for (b->n = 0; b->n < n; b->n++) b->group[b->n] = (member){.seq = b->admitted[b->n]};
    int64_t longest = longest_due(b, st);
    for (int i = 0; i < b->n && st->pad; i++) {
        const dlab_seq *s = seq_of(st, &b->group[i]);
        if (runs(s)) b->group[i].pads_left = longest - dlab_seq_due(st, s);
    }
    return DLAB_OK;
}

static bool group_ended(const fixed *b, const dlab_batch_state *st)
{
    for (int i = 0; i < b->n; i++) {
        if (seq_of(st, &b->group[i])->finish == DLAB_FINISH_NONE) return false;
    }
    return true;
}

/* An ended member that still holds its place, or −1. */
static int ended_holder(const fixed *b, const dlab_batch_state *st)
{
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = seq_of(st, &b->group[i]);
        if (s->finish != DLAB_FINISH_NONE && s->held) return b->group[i].seq;
    }
    return -1;
}

/* Room for what the sequence has and for what the running ones will want soon: who comes back too early is sent away again,
 * and all its computing was for nothing. */
static bool has_room(const fixed *b, const dlab_batch_state *st, const dlab_seq *s)
{
    int64_t running = 0;
    for (int i = 0; i < b->n; i++) running += runs(seq_of(st, &b->group[i]));
    return running == 0 || st->room(st->ctx) >= s->n_ids + (running + 1) * st->slack;
}

/* Those that gave their place back go on, the oldest first, as soon as there is room; ended members, which would hold theirs
 * to the end of the batch, make it. */
static dlab_status resume(fixed *b, dlab_batch_state *st, dlab_error *err)
{
    for (int i = 0; i < b->n && !st->full; i++) {
        const dlab_seq *s = seq_of(st, &b->group[i]);
        if (s->held || s->leader >= 0 || s->finish != DLAB_FINISH_NONE) continue;
        dlab_status status;
        while ((status = has_room(b, st, s) ? st->open(st->ctx, b->group[i].seq, 1, err) : DLAB_EFULL) == DLAB_EFULL) {
            const int ended = ended_holder(b, st);
            if (ended < 0) return DLAB_OK; /* nor would a younger one be let past it */
            st->release(st->ctx, ended);
        }
        DLAB_TRY(status);
    }
    return DLAB_OK;
}

/* Rows of the members that have produced nothing yet, or must be computed again, within the chunk and what is left of the
 * budget. */
static int prefill(fixed *b, const dlab_batch_state *st, dlab_slice *out)
{
    int n = 0;
    int64_t budget = st->token_budget;
    for (int i = 0; i < b->n && budget > 0; i++) {
        member *m = &b->group[i];
        const dlab_seq *s = seq_of(st, m);
        const bool behind = st->retains && dlab_seq_due(st, s) > 1;
        if (!runs(s) || (s->n_new > 0 && !behind)) continue;
        int64_t take = dlab_min_i64(dlab_min_i64(st->chunk, budget), m->pads_left + dlab_seq_due(st, s));
        m->pads_now = (int32_t)dlab_min_i64(take, m->pads_left);
        out[n++] = (dlab_slice){
            .seq = m->seq,
            .first = st->retains ? s->n_stored : 0,
            .n_rows = (int32_t)(take - m->pads_now),
            .n_pad = m->pads_now,
            .pad_pos = m->pads_done,
        };
        budget -= take;
    }
    return n;
}

/* One token for each member; the ended ones and the shorter prefixes of a store without a cache are padding. */
static int decode(const fixed *b, const dlab_batch_state *st, dlab_slice *out)
{
    int n = 0;
    int64_t longest = longest_due(b, st);
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = seq_of(st, &b->group[i]);
        if (!s->held || s->leader >= 0) continue;
        int64_t due = runs(s) ? dlab_seq_due(st, s) : 0;
        int64_t pads = st->pad ? longest - due : 0;
        if (due + pads == 0) continue;
        /* The last token of an ended member was never fed back: its last position is the one before. */
        const int64_t last = s->n_ids - (s->finish != DLAB_FINISH_NONE ? 2 : 1);
        out[n++] = (dlab_slice){
            .seq = b->group[i].seq,
            .first = s->n_ids - due,
            .n_rows = (int32_t)due,
            .n_pad = (int32_t)pads,
            .pad_pos = st->retains ? last : 0,
        };
    }
    return n;
}

static dlab_status next(dlab_batcher *base, dlab_batch_state *st, dlab_slice *out, int *n, dlab_error *err)
{
    fixed *b = (fixed *)base;
    for (int i = 0; i < b->n; i++) b->group[i].pads_now = 0;
    if (b->n == 0)
        DLAB_TRY(admit_group(b, st, err));
    else
        DLAB_TRY(resume(b, st, err));
    *n = prefill(b, st, out);
    if (*n == 0) *n = decode(b, st, out);
    return DLAB_OK;
}

static int victim(const dlab_batcher *base, const dlab_batch_state *st)
{
    const fixed *b = (const fixed *)base;
    const int ended = ended_holder(b, st);
    if (ended >= 0) return ended;
    int oldest = 0;
    while (oldest < b->n && !runs(seq_of(st, &b->group[oldest]))) oldest++;
    for (int i = b->n - 1; i > oldest; i--) {
        if (runs(seq_of(st, &b->group[i]))) return b->group[i].seq;
    }
    return -1;
}

static void settle(dlab_batcher *base, dlab_batch_state *st)
{
    fixed *b = (fixed *)base;
    for (int i = 0; i < b->n && st->retains; i++) {
        b->group[i].pads_left -= b->group[i].pads_now;
        b->group[i].pads_done += b->group[i].pads_now;
    }
    if (!group_ended(b, st)) return;
    for (int i = 0; i < b->n; i++) st->close(st->ctx, b->group[i].seq);
    b->n = 0;
}

const dlab_batcher_ops dlab_batcher_static = {
    .name = "static",
    .summary = "requests start and are released together; prompts padded to the longest",
    .create = create,
    .destroy = destroy,
    .next = next,
    .victim = victim,
    .settle = settle,
    .reset = reset,
};
