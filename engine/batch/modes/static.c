/* B1: a static batch. batch.size requests start together, their prompts padded on the left to the longest, and all places
 * are released together when the longest request has ended. Padding is computed (what the padded tensors of most
 * frameworks do) or skipped, by batch.padding. */
#include <stdlib.h>

#include "base/int.h"
#include "engine/batch/batcher.h"

extern const dlab_batcher_ops dlab_batcher_static;

typedef struct {
    int64_t left, done; /* of the prompt's padding */
    int32_t now;        /* in the step that was last proposed */
} padding;

typedef struct {
    dlab_batcher base;
    int n;
    int *seqs;       /* [batch_size], the oldest first */
    int64_t skipped; /* rows of the prompts' padding, left out: counted in the batch's first step */
    padding pads[];  /* [batch_size] */
} fixed;

static dlab_status create(const dlab_batch_state *st, dlab_batcher **out, dlab_error *err)
{
    *out = NULL;
    const size_t size = (size_t)st->batch_size;
    fixed *b = calloc(1, sizeof *b + size * (sizeof b->pads[0] + sizeof *b->seqs));
    if (!b) return DLAB_FAIL(err, DLAB_EOOM, "static batcher: out of memory");
    b->base.ops = &dlab_batcher_static;
    b->seqs = (int *)(void *)&b->pads[size];
    *out = &b->base;
    return DLAB_OK;
}

static void destroy(dlab_batcher *b) { free(b); }
static void reset(dlab_batcher *b) { ((fixed *)b)->n = 0; }

static dlab_seq *seq_of(const fixed *b, const dlab_batch_state *st, int i) { return &st->seqs[b->seqs[i]]; }

static int64_t longest_due(const fixed *b, const dlab_batch_state *st)
{
    int64_t longest = 0;
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = seq_of(b, st, i);
        longest = dlab_max_i64(longest, dlab_seq_runs(s) ? dlab_seq_due(st, s) : 0);
    }
    return longest;
}

static dlab_status admit_group(fixed *b, dlab_batch_state *st, dlab_error *err)
{
    int before;
    const dlab_policy *policy = st->queue.policy;
    if (policy->ops->begin) policy->ops->begin(st->queue.policy);
    do {
        before = b->n;
        DLAB_TRY(dlab_batch_admit(st, 0, b->seqs, &b->n, err));
    } while (b->n > before);
    const int64_t longest = longest_due(b, st);
    b->skipped = 0;
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = seq_of(b, st, i);
        const int64_t pads = dlab_seq_runs(s) ? longest - dlab_seq_due(st, s) : 0;
        b->pads[i] = (padding){.left = st->pad ? pads : 0};
        b->skipped += st->pad ? 0 : pads;
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
        padding *p = &b->pads[i];
        const dlab_seq *s = seq_of(b, st, i);
        const bool behind = st->retains && dlab_seq_due(st, s) > 1;
        if (!dlab_seq_runs(s) || (s->n_new > 0 && !behind)) continue;
        int64_t take = dlab_min_i64(dlab_min_i64(st->chunk, budget), p->left + dlab_seq_due(st, s));
        p->now = (int32_t)dlab_min_i64(take, p->left);
        out[n++] = (dlab_slice){
            .seq = b->seqs[i],
            .first = st->retains ? s->n_stored : 0,
            .n_rows = (int32_t)(take - p->now),
            .n_pad = p->now,
            .pad_pos = p->done,
        };
        budget -= take;
    }
    return n;
}

/* One token for each member; the ended ones and the shorter prefixes of a store without a cache are padding. */
static int decode(const fixed *b, dlab_batch_state *st, dlab_slice *out)
{
    int n = 0;
    const int64_t longest = longest_due(b, st);
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = seq_of(b, st, i);
        if (!s->held || s->leader >= 0) continue;
        const int64_t due = dlab_seq_runs(s) ? dlab_seq_due(st, s) : 0, pads = st->pad ? longest - due : 0;
        st->pad_skipped += longest - due - pads;
        if (due + pads == 0) continue;
        /* The last token of an ended member was never fed back: its last position is the one before. */
        const int64_t last = s->n_ids - (s->finish != DLAB_FINISH_NONE ? 2 : 1);
        out[n++] = (dlab_slice){
            .seq = b->seqs[i],
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
    bool all;
    for (int i = 0; i < b->n; i++) b->pads[i].now = 0;
    if (b->n == 0)
        DLAB_TRY(admit_group(b, st, err));
    else if (!st->full)
        DLAB_TRY(dlab_batch_resume(st, b->seqs, b->n, &all, err));
    st->pad_skipped = b->skipped;
    *n = prefill(b, st, out);
    if (*n == 0) *n = decode(b, st, out);
    return DLAB_OK;
}

static int victim(const dlab_batcher *base, const dlab_batch_state *st)
{
    const fixed *b = (const fixed *)base;
    return dlab_batch_victim(st, b->seqs, b->n);
}

/* All places are given back together. */
static void end_group(fixed *b, dlab_batch_state *st)
{
    for (int i = 0; i < b->n; i++) {
        if (seq_of(b, st, i)->finish == DLAB_FINISH_NONE) return;
    }
    for (int i = 0; i < b->n; i++) st->close(st->ctx, b->seqs[i]);
    b->n = 0;
}

static void settle(dlab_batcher *base, dlab_batch_state *st)
{
    fixed *b = (fixed *)base;
    for (int i = 0; i < b->n && st->retains; i++) {
        b->pads[i].left -= b->pads[i].now;
        b->pads[i].done += b->pads[i].now;
    }
    b->skipped = 0;
    end_group(b, st);
}

/* Its place of the batch stays empty to the batch's end, and is not padded. */
static void drop(dlab_batcher *base, dlab_batch_state *st, int seq)
{
    st->release(st->ctx, seq, NULL);
    end_group((fixed *)base, st);
}

const dlab_batcher_ops dlab_batcher_static = {
    .name = "static",
    .summary = "requests start and are released together; prompts padded to the longest (B1)",
    .together = true,
    .pads = true,
    .create = create,
    .destroy = destroy,
    .next = next,
    .victim = victim,
    .settle = settle,
    .drop = drop,
    .reset = reset,
};
