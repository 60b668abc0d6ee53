/* B2: a continuous batch. At every step ended requests have left and waiting ones join; a step has one row for every sequence
 * that produces tokens, and what is left of its budget goes to prompts in chunks, the oldest first. So nobody who produces
 * waits for a prompt, and, as the budget holds a row for every place of the batch, no prompt waits for those who produce. */
#include <stdlib.h>

#include "base/int.h"
#include "engine/batch/batcher.h"

extern const dlab_batcher_ops dlab_batcher_continuous;

typedef struct {
    dlab_batcher base;
    int n;
    int seqs[]; /* [batch_size], the oldest first */
} rolling;

static dlab_status create(const dlab_batch_state *st, dlab_batcher **out, dlab_error *err)
{
    *out = NULL;
    rolling *b = calloc(1, sizeof *b + (size_t)st->batch_size * sizeof b->seqs[0]);
    if (!b) return DLAB_FAIL(err, DLAB_EOOM, "continuous batcher: out of memory");
    b->base.ops = &dlab_batcher_continuous;
    *out = &b->base;
    return DLAB_OK;
}

static void destroy(dlab_batcher *b) { free(b); }
static void reset(dlab_batcher *b) { ((rolling *)b)->n = 0; }

/* Those that gave their place back come before anybody new. */
static dlab_status fill(rolling *b, dlab_batch_state *st, dlab_error *err)
{
    bool all;
    int before;
    DLAB_TRY(dlab_batch_resume(st, b->seqs, b->n, &all, err));
    if (!all || b->n == st->batch_size || st->queue.n == 0) return DLAB_OK;
    int64_t running = dlab_batch_running(st, b->seqs, b->n);
    do {
        before = b->n;
        DLAB_TRY(dlab_batch_admit(st, running, b->seqs, &b->n, err));
        running += b->n - before;
    } while (b->n > before);
    return DLAB_OK;
}

/* The next row of it brings a token. Without a cache the whole prefix is computed for that, every time. */
static bool produces(const dlab_batch_state *st, const dlab_seq *s)
{
    return s->n_new > 0 && (!st->retains || dlab_seq_due(st, s) == 1);
}

static int add_slices(const rolling *b, const dlab_batch_state *st, bool producing, int64_t *budget, dlab_slice *out)
{
    int n = 0;
    for (int i = 0; *budget > 0 && i < b->n; i++) {
        const dlab_seq *s = &st->seqs[b->seqs[i]];
        if (!dlab_seq_runs(s) || produces(st, s) != producing) continue;
        const int64_t due = dlab_seq_due(st, s), rows = dlab_min_i64(dlab_min_i64(due, st->chunk), *budget);
        out[n++] = (dlab_slice){.seq = b->seqs[i], .first = s->n_ids - due, .n_rows = (int32_t)rows};
        *budget -= rows;
    }
    return n;
}

static dlab_status next(dlab_batcher *base, dlab_batch_state *st, dlab_slice *out, int *n, dlab_error *err)
{
    rolling *b = (rolling *)base;
    if (!st->full) DLAB_TRY(fill(b, st, err));
    int64_t budget = st->token_budget;
    *n = add_slices(b, st, true, &budget, out);
    *n += add_slices(b, st, false, &budget, out + *n);
    return DLAB_OK;
}

static int victim(const dlab_batcher *base, const dlab_batch_state *st)
{
    const rolling *b = (const rolling *)base;
    return dlab_batch_victim(st, b->seqs, b->n);
}

static void settle(dlab_batcher *base, dlab_batch_state *st)
{
    rolling *b = (rolling *)base;
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        if (st->seqs[b->seqs[i]].finish == DLAB_FINISH_NONE)
            b->seqs[n++] = b->seqs[i];
        else
            st->close(st->ctx, b->seqs[i]);
    }
    b->n = n;
}

static void drop(dlab_batcher *base, dlab_batch_state *st, int seq)
{
    (void)seq; /* it has ended, like its other samples */
    settle(base, st);
}

const dlab_batcher_ops dlab_batcher_continuous = {
    .name = "continuous",
    .summary = "at every step ended requests leave and waiting ones join; prompts in chunks beside tokens (B2)",
    .create = create,
    .destroy = destroy,
    .next = next,
    .victim = victim,
    .settle = settle,
    .drop = drop,
    .reset = reset,
};
