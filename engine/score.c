/* One text through the plan's store: log-probabilities, most likely tokens, logits. */
#include <string.h>

#include "engine/core.h"

/* Rows of one step that may want logits bound the step, unless the store needs the prefix whole. */
static dlab_status score_step(dlab_engine *e, int seq, int64_t from, double *nll, int32_t *top1, float *logits,
                              dlab_error *err)
{
    dlab_slice slice = dlab_step_next_slice(e, seq);
    int64_t first_wanted = slice.first > from ? slice.first : from;
    if (slice.first + slice.n_rows - first_wanted > e->plan.max_logits) {
        if (!e->batch.retains) {
            return DLAB_FAIL(err, DLAB_EINTERNAL, "score: %lld rows want logits, the engine was made for %lld",
                             (long long)(slice.first + slice.n_rows - first_wanted), (long long)e->plan.max_logits);
        }
        slice.n_rows = (int32_t)(first_wanted + e->plan.max_logits - slice.first);
    }
    int64_t skip = first_wanted - from; /* results before this step's */
    dlab_step_want want = {.want = DLAB_WANT_SCORE, .from = from};
    if (logits) want.logits = logits + skip * e->fwd.info->vocab;
    dlab_step_work work;
    DLAB_TRY(dlab_step_reserve(e, &slice, 1, err));
    DLAB_TRY(dlab_step_execute(e, &slice, 1, &want, &work, err));
    int32_t n = e->desc->n_logits;
    if (n == 0) return DLAB_OK;
    if (top1) memcpy(top1 + skip, e->sampled, (size_t)n * sizeof *top1);
    if (!nll) return DLAB_OK;
    dlab_device *dev = e->fwd.dev;
    DLAB_TRY(
        dev->ops->download(dev, nll + skip, (dlab_at){e->fwd.buf[DLAB_BUFFER_NLL], 0}, (size_t)n * sizeof *nll, err));
    return dev->ops->sync(dev, err);
}

dlab_status dlab_engine_score(dlab_engine *e, const int32_t *ids, int64_t n, int64_t n_last, double *nll, int32_t *top1,
                              float *logits, dlab_error *err)
{
    if (n < 1 || n > e->plan.needs.max_tokens || n_last < 1 || n_last > n) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "score: %lld of %lld tokens, room for %lld", (long long)n_last, (long long)n,
                         (long long)e->plan.needs.max_tokens);
    }
    if (dlab_engine_busy(e)) return DLAB_FAIL(err, DLAB_EINTERNAL, "score: the engine is busy with requests");
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= e->fwd.info->vocab) {
            return DLAB_FAIL(err, DLAB_EUSAGE, "score: token %lld is %d, outside the vocabulary of %d", (long long)i,
                             ids[i], e->fwd.info->vocab);
        }
    }
    int seq = dlab_batch_free_seq(&e->batch, -1);
    if (seq < 0) return DLAB_FAIL(err, DLAB_EIMPOSSIBLE, "score: all %d sequences are taken", e->batch.n_seqs);
    dlab_seq *s = &e->batch.seqs[seq];
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    s->n_ids = n;
    dlab_status st = dlab_engine_open_seq(e, seq, 0, err);
    if (s->n_stored > n - n_last) s->n_stored = n - n_last; /* cached or not, these positions want logits */
    while (st == DLAB_OK && s->n_stored < n) st = score_step(e, seq, n - n_last, nll, top1, logits, err);
    dlab_engine_close_seq(e, seq);
    return st;
}
