/* B1: a static batch. batch.size requests start together, their prompts padded on the left to the longest, and all places
 * are released together when the longest request has ended. Padding is computed (what the padded tensors of most
 * frameworks do) or skipped, by batch.padding. */
#include <stdlib.h>

#include "engine/batch/batcher.h"

extern const dlab_batcher_ops dlab_batcher_static;

typedef struct {
    int seq;
    int64_t pads_left, pads_done; /* of the prompt */
} member;

typedef struct {
    dlab_batcher base;
    int n;
    member group[]; /* [batch_size] */
} fixed;

static dlab_status create(const dlab_batch_state *st, dlab_batcher **out, dlab_error *err)
{
    *out = NULL;
    fixed *b = calloc(1, sizeof *b + (size_t)st->batch_size * sizeof b->group[0]);
    if (!b) return DLAB_FAIL(err, DLAB_EOOM, "static batcher: out of memory");
    b->base.ops = &dlab_batcher_static;
    *out = &b->base;
    return DLAB_OK;
}

static void destroy(dlab_batcher *b) { free(b); }
static void reset(dlab_batcher *b) { ((fixed *)b)->n = 0; }

static int64_t longest_due(const fixed *b, const dlab_batch_state *st)
{
    int64_t longest = 0;
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = &st->seqs[b->group[i].seq];
        int64_t due = s->finish == DLAB_FINISH_NONE ? dlab_seq_due(st, s) : 0;
        if (due > longest) longest = due;
    }
    return longest;
}

static dlab_status admit_group(fixed *b, dlab_batch_state *st, dlab_error *err)
{
    while (b->n < st->batch_size) {
        int seq = -1;
        DLAB_TRY(dlab_batch_admit(st, &seq, err));
        if (seq < 0) break;
        b->group[b->n++] = (member){.seq = seq};
    }
    int64_t longest = longest_due(b, st);
    for (int i = 0; i < b->n && st->pad; i++) {
        b->group[i].pads_left = longest - dlab_seq_due(st, &st->seqs[b->group[i].seq]);
    }
    return DLAB_OK;
}

static bool group_ended(const fixed *b, const dlab_batch_state *st)
{
    for (int i = 0; i < b->n; i++) {
        if (st->seqs[b->group[i].seq].finish == DLAB_FINISH_NONE) return false;
    }
    return true;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Prompt rows of the members that have produced nothing yet, within the chunk and what is left of the budget. */
static int prefill(fixed *b, const dlab_batch_state *st, dlab_slice *out)
{
    int n = 0;
    int64_t budget = st->token_budget;
    for (int i = 0; i < b->n && budget > 0; i++) {
        member *m = &b->group[i];
        const dlab_seq *s = &st->seqs[m->seq];
        if (s->n_new > 0 || s->finish != DLAB_FINISH_NONE) continue;
        int64_t take = least(least(st->chunk, budget), m->pads_left + dlab_seq_due(st, s));
        int64_t pads = least(take, m->pads_left);
        out[n++] = (dlab_slice){
            .seq = m->seq,
            .first = st->retains ? s->n_stored : 0,
            .n_rows = (int32_t)(take - pads),
            .n_pad = (int32_t)pads,
            .pad_pos = m->pads_done,
        };
        if (st->retains) {
            m->pads_left -= pads;
            m->pads_done += pads;
        }
        budget -= take;
    }
    return n;
}

/* One token for each member; the ended ones and the shorter prefixes of a store without a cache are padding. */
static int decode(fixed *b, const dlab_batch_state *st, dlab_slice *out)
{
    int n = 0;
    int64_t longest = longest_due(b, st);
    for (int i = 0; i < b->n; i++) {
        const dlab_seq *s = &st->seqs[b->group[i].seq];
        int64_t due = s->finish == DLAB_FINISH_NONE ? dlab_seq_due(st, s) : 0;
        int64_t pads = st->pad ? longest - due : 0;
        if (due + pads == 0) continue;
        out[n++] = (dlab_slice){
            .seq = b->group[i].seq,
            .first = s->n_ids - due,
            .n_rows = (int32_t)due,
            .n_pad = (int32_t)pads,
            .pad_pos = st->retains ? s->n_ids - 1 : 0,
        };
    }
    return n;
}

static dlab_status next(dlab_batcher *base, dlab_batch_state *st, dlab_slice *out, int *n, dlab_error *err)
{
    fixed *b = (fixed *)base;
    if (b->n == 0) DLAB_TRY(admit_group(b, st, err));
    *n = prefill(b, st, out);
    if (*n == 0) *n = decode(b, st, out);
    return DLAB_OK;
}

static void settle(dlab_batcher *base, dlab_batch_state *st)
{
    fixed *b = (fixed *)base;
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
    .settle = settle,
    .reset = reset,
};
