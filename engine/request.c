/* Requests: which can be served at all, those that wait, those that are given up. */
#include <math.h>
#include <string.h>

#include "base/int.h"
#include "engine/core.h"

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

int64_t dlab_engine_longest(const dlab_engine *e)
{
    const int64_t pool = e->fwd.store->ops->capacity(e->fwd.store), lengths = e->batch.max_lengths;
    const int64_t longest = dlab_min_i64(pool, e->plan.needs.max_tokens) + 1; /* the last token is never fed back */
    return lengths > 0 ? dlab_min_i64(longest, lengths) : longest;
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

/* B3's rule would let a request that alone is over the budget wait for ever, and all behind it. */
static dlab_status check_budget(const dlab_engine *e, const dlab_engine_request *r, int64_t primed, dlab_error *err)
{
    const int64_t budget = e->batch.max_lengths, samples = r->samples > 1 ? r->samples : 1;
    const int64_t length = samples * (primed + r->n_prompt + r->max_new);
    if (budget == 0 || length <= budget) return DLAB_OK;
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "request %lld: %lld x (%lld cached + %lld prompt + %lld new tokens) = %lld, over the whole budget of "
        "lengths, %lld (batch.token_budget)",
        (long long)r->id, (long long)samples, (long long)primed, (long long)r->n_prompt, (long long)r->max_new,
        (long long)length, (long long)budget);
}

static dlab_status check_sampling(const dlab_engine *e, const dlab_engine_request *r, dlab_error *err)
{
    if (!r->own_sampling) return DLAB_OK;
    if (!e->plan.needs.own_sampling) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "request %lld: brings its own sampling, and the engine was made for the plan's alone "
                         "(needs.own_sampling)",
                         (long long)r->id);
    }
    if (!(r->temperature >= 0) || isinf(r->temperature)) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "request %lld: temperature %g; expected 0 (greedy) or a number above",
                         (long long)r->id, (double)r->temperature);
    }
    if (!(r->top_p >= 0 && r->top_p <= 1)) {
        return DLAB_FAIL(err, DLAB_EUSAGE,
                         "request %lld: top_p %g; expected a number from 0 (the most likely alone) to 1 (all)",
                         (long long)r->id, (double)r->top_p);
    }
    if (r->top_k < 0) {
        return DLAB_FAIL(err, DLAB_EUSAGE, "request %lld: top_k %d; expected 0 (all) or how many to keep",
                         (long long)r->id, r->top_k);
    }
    return DLAB_OK;
}

dlab_status dlab_engine_check_request(const dlab_engine *e, const dlab_engine_request *r, dlab_error *err)
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
    DLAB_TRY(check_sampling(e, r, err));
    DLAB_TRY(check_length(e, r, primed, err));
    DLAB_TRY(check_budget(e, r, primed, err));
    for (int64_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= e->fwd.info->vocab) {
            return DLAB_FAIL(err, DLAB_EUSAGE, "request %lld: prompt token %lld is %d, outside the vocabulary of %d",
                             (long long)r->id, (long long)i, r->prompt[i], e->fwd.info->vocab);
        }
    }
    return DLAB_OK;
}

dlab_status dlab_engine_submit(dlab_engine *e, const dlab_engine_request *r, dlab_error *err)
{
    DLAB_TRY(dlab_engine_check_request(e, r, err));
    dlab_engine_request own = *r;
    if (!r->own_sampling) {
        own.temperature = (float)e->plan.plan.temperature;
        own.top_p = (float)e->plan.plan.top_p;
        own.top_k = (int32_t)e->plan.plan.top_k;
    }
    return dlab_queue_push(&e->batch.queue, &own, e->n_steps, err);
}

bool dlab_engine_busy(const dlab_engine *e) { return e->batch.queue.n > 0 || e->batch.n_live > 0 || e->n_kept > 0; }

void dlab_engine_get_load(const dlab_engine *e, dlab_engine_load *out)
{
    *out = (dlab_engine_load){.waiting = e->batch.queue.n_places, .running = e->batch.n_live};
}

void dlab_engine_gate(dlab_engine *e, bool open) { e->batch.shut = !open; }

/* What batch.release: at_end has kept of a request that nobody wants any more; false: nothing. */
static bool drop_kept(dlab_engine *e, int64_t id)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_kept; i++) {
        if (e->origins[i] == id) continue;
        e->tokens[n] = e->tokens[i];
        e->origins[n++] = e->origins[i];
    }
    const bool found = n < e->n_kept;
    e->n_kept = n;
    return found;
}

static bool is_sample_of(const dlab_seq *s, int64_t id) { return s->running && s->origin == id; }

bool dlab_engine_abort(dlab_engine *e, int64_t id)
{
    dlab_batch_state *st = &e->batch;
    if (dlab_queue_remove(&st->queue, id)) return true;
    bool found = drop_kept(e, id);         /* its batch may be gone, with all sequences */
    for (int i = 0; i < st->n_seqs; i++) { /* all of them end before the batcher may let go of any */
        dlab_seq *s = &st->seqs[i];
        if (!is_sample_of(s, id) || s->finish != DLAB_FINISH_NONE) continue;
        dlab_batch_end(st, s, DLAB_FINISH_LENGTH);
        found = true;
    }
    for (int i = 0; i < st->n_seqs && found; i++) {
        if (is_sample_of(&st->seqs[i], id)) e->batcher->ops->drop(e->batcher, st, i);
    }
    return found;
}

void dlab_engine_cancel(dlab_engine *e, bool keep_cache)
{
    dlab_batch_state *st = &e->batch;
    st->shut = false;
    dlab_queue_clear(&st->queue);
    for (int i = 0; i < st->n_seqs; i++) {
        if (st->seqs[i].running) dlab_engine_close_seq(e, i);
    }
    st->n_live = st->lengths = 0;
    e->n_kept = 0;
    e->batcher->ops->reset(e->batcher);
    if (!keep_cache) e->fwd.store->ops->reset(e->fwd.store);
}
