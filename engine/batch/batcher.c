#include "engine/batch/batcher.h"

#include <string.h>

const dlab_batcher_ops *dlab_batcher_find(const char *name)
{
    for (size_t i = 0; dlab_batchers[i]; i++) {
        if (strcmp(dlab_batchers[i]->name, name) == 0) return dlab_batchers[i];
    }
    return NULL;
}

int64_t dlab_seq_due(const dlab_batch_state *st, const dlab_seq *s)
{
    return st->retains ? s->n_ids - s->n_stored : s->n_ids;
}

int dlab_batch_free_seq(const dlab_batch_state *st, int after)
{
    for (int i = after + 1; i < st->n_seqs; i++) {
        if (!st->seqs[i].open) return i;
    }
    return -1;
}

static int first_seq(const dlab_batch_state *st, int32_t primed)
{
    if (primed >= 0) return st->seqs[primed].running ? -1 : primed;
    return dlab_batch_free_seq(st, -1);
}

/* The ids of the prompt, behind a primed prefix where there is one. */
static void begin_sequence(dlab_seq *s, const dlab_engine_request *r, int32_t sample, int leader)
{
    memcpy(s->ids + s->n_ids, r->prompt, (size_t)r->n_prompt * sizeof *s->ids);
    s->n_ids += r->n_prompt;
    s->open = s->running = true;
    s->leader = leader;
    s->finish = DLAB_FINISH_NONE;
    s->origin = r->id;
    s->request = r->id + sample;
    s->max_new = r->max_new;
    s->n_new = 0;
    s->eos = r->eos;
    s->seed = r->seed + (uint64_t)sample;
    s->temperature = r->temperature;
    s->top_p = r->top_p;
    s->top_k = r->top_k;
}

static void take_back(dlab_seq *s, int64_t n_prompt)
{
    s->n_ids -= n_prompt;
    s->running = false;
    s->open = s->primed;
}

/* ---- room ---------------------------------------------------------------------------------------------------------- */

int64_t dlab_batch_running(const dlab_batch_state *st, const int *seqs, int n)
{
    int64_t running = 0;
    for (int i = 0; i < n; i++) running += dlab_seq_runs(&st->seqs[seqs[i]]);
    return running;
}

/* Room for n_tokens more, and for what the running ones and the new ones will want soon: who comes too early is sent away
 * again, and all its computing was for nothing. A store that reserves whole sequences says so itself. */
static bool has_room(const dlab_batch_state *st, int64_t n_tokens, int64_t running, int64_t more)
{
    return running == 0 || st->slack == 0 || st->room(st->ctx) >= n_tokens + (running + more) * st->slack;
}

/* What a sequence counts for in batch.budget: lengths. */
static int64_t length_of(const dlab_seq *s) { return s->n_ids - s->n_new + s->max_new; }

/* ---- who starts ---------------------------------------------------------------------------------------------------- */

/* Chooses as many free sequences as the request has samples; false: there are not so many. */
static bool choose_seqs(const dlab_batch_state *st, const dlab_engine_request *r, int samples, int *seqs)
{
    seqs[0] = first_seq(st, r->primed);
    for (int j = 1; j < samples && seqs[j - 1] >= 0; j++) seqs[j] = dlab_batch_free_seq(st, seqs[j - 1]);
    return seqs[samples - 1] >= 0;
}

/* Looking a prompt up hashes all of it, and makes what it finds the last to be evicted: not at every step of a long wait, but
 * when there is more room than last time, or when one more prompt was computed, whose blocks it may share. */
static bool refused_before(const dlab_batch_state *st, const dlab_queued *q)
{
    return st->refused.order == q->order && st->n_live > 0 && st->refused.n_prompts == st->n_prompts &&
           st->room(st->ctx) <= st->refused.room;
}

/* The batch, its budget and the store have room for it, as far as that is known beforehand. A prompt may be in the prefix
 * cache: only looking it up will tell. */
static bool may_start(const dlab_batch_state *st, const dlab_queued *q, int64_t running, int n)
{
    const int64_t samples = dlab_queued_places(q);
    const dlab_engine_request *r = &q->request;
    if (n + samples > st->batch_size) return false;
    const int64_t primed = r->primed >= 0 ? st->seqs[r->primed].n_primed : 0;
    const int64_t lengths = samples * (primed + r->n_prompt + r->max_new);
    if (st->max_lengths > 0 && st->lengths + lengths > st->max_lengths) return false;
    return has_room(st, st->looks_up ? 0 : r->n_prompt, running, samples) && !refused_before(st, q);
}

dlab_status dlab_batch_admit(dlab_batch_state *st, int64_t running, int *seqs, int *n, dlab_error *err)
{
    const dlab_queued *q = st->shut ? NULL : dlab_queue_first(&st->queue);
    if (!q || !may_start(st, q, running, *n)) return DLAB_OK;
    const dlab_engine_request *r = &q->request;
    const int samples = (int)dlab_queued_places(q);
    int *mine = seqs + *n;
    if (!choose_seqs(st, r, samples, mine)) return DLAB_OK;
    dlab_seq *leader = &st->seqs[mine[0]];
    const int64_t live_before = leader->n_live; /* of a primed prefix: not a hit */
    begin_sequence(leader, r, 0, -1);
    const dlab_status status = st->open(st->ctx, mine[0], 1, err);
    if (status != DLAB_OK) {
        take_back(leader, r->n_prompt);
        if (status != DLAB_EFULL) return status;
        if (st->looks_up) {
            st->refused.order = q->order;
            st->refused.room = st->room(st->ctx);
            st->refused.n_prompts = st->n_prompts;
        }
        return DLAB_OK;
    }
    for (int j = 1; j < samples; j++) begin_sequence(&st->seqs[mine[j]], r, j, mine[0]);
    for (int j = 0; j < samples; j++) {
        st->admitted[st->n_admitted] = r->id + j;
        st->admitted_cached[st->n_admitted++] = j == 0 ? leader->n_live - live_before : r->n_prompt;
        st->lengths += length_of(&st->seqs[mine[j]]);
    }
    if (st->looks_up) {
        st->asked_tokens += r->n_prompt;
        st->hit_tokens += leader->n_live - live_before;
    }
    st->n_live += samples;
    *n += samples;
    dlab_queue_pop(&st->queue);
    return DLAB_OK;
}

/* ---- who gives way, and comes back --------------------------------------------------------------------------------- */

/* An ended sequence that still holds its place, or −1. */
static int ended_holder(const dlab_batch_state *st, const int *seqs, int n)
{
    for (int i = 0; i < n; i++) {
        const dlab_seq *s = &st->seqs[seqs[i]];
        if (s->finish != DLAB_FINISH_NONE && s->held) return seqs[i];
    }
    return -1;
}

dlab_status dlab_batch_resume(dlab_batch_state *st, const int *seqs, int n, bool *all, dlab_error *err)
{
    int64_t running = dlab_batch_running(st, seqs, n);
    *all = false;
    for (int i = 0; i < n; i++) {
        const dlab_seq *s = &st->seqs[seqs[i]];
        if (s->held || s->leader >= 0 || s->finish != DLAB_FINISH_NONE) continue;
        dlab_status status;
        while ((status = has_room(st, s->n_ids, running, 1) ? st->open(st->ctx, seqs[i], 1, err) : DLAB_EFULL) ==
               DLAB_EFULL) {
            const int ended = ended_holder(st, seqs, n);
            if (ended < 0) return DLAB_OK; /* nor would a younger one be let past it */
            DLAB_TRY(st->release(st->ctx, ended, err));
        }
        DLAB_TRY(status);
        running++;
    }
    *all = true;
    return DLAB_OK;
}

int dlab_batch_victim(const dlab_batch_state *st, const int *seqs, int n)
{
    const int ended = ended_holder(st, seqs, n);
    if (ended >= 0) return ended;
    int oldest = 0;
    while (oldest < n && !dlab_seq_runs(&st->seqs[seqs[oldest]])) oldest++;
    for (int i = n - 1; i > oldest; i--) {
        if (dlab_seq_runs(&st->seqs[seqs[i]])) return seqs[i];
    }
    return -1;
}

void dlab_batch_end(dlab_batch_state *st, dlab_seq *s, dlab_finish how)
{
    s->finish = how;
    st->n_live--;
    st->lengths -= length_of(s);
}
