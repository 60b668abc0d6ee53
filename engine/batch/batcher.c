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

/* The free sequence behind `after`, or −1. */
static int free_seq(const dlab_batch_state *st, int after)
{
    for (int i = after + 1; i < st->n_seqs; i++) {
        if (!st->seqs[i].open) return i;
    }
    return -1;
}

static int first_seq(const dlab_batch_state *st, int32_t primed)
{
    if (primed >= 0) return st->seqs[primed].running ? -1 : primed;
    return free_seq(st, -1);
}

/* The ids of the prompt, behind a primed prefix where there is one. */
static void begin_sequence(dlab_seq *s, const dlab_engine_request *r, int32_t sample, int leader)
{
    memcpy(s->ids + s->n_ids, r->prompt, (size_t)r->n_prompt * sizeof *s->ids);
    s->n_ids += r->n_prompt;
    s->open = s->running = true;
    s->leader = leader;
    s->finish = DLAB_FINISH_NONE;
    s->request = r->id + sample;
    s->max_new = r->max_new;
    s->n_new = 0;
    s->eos = r->eos;
    s->seed = r->seed + (uint64_t)sample;
}

static void take_back(dlab_seq *s, int64_t n_prompt)
{
    s->n_ids -= n_prompt;
    s->running = false;
    s->open = s->primed;
}

dlab_status dlab_batch_admit(dlab_batch_state *st, int *seqs, int *n, dlab_error *err)
{
    dlab_queued *q = st->head;
    if (!q) return DLAB_OK;
    const dlab_engine_request *r = &q->request;
    const int samples = r->samples > 1 ? r->samples : 1;
    if (*n + samples > st->batch_size) return DLAB_OK;
    const int first = first_seq(st, r->primed);
    if (first < 0) return DLAB_OK;
    seqs[*n] = first;
    for (int j = 1, at = first; j < samples; j++) {
        at = free_seq(st, at);
        if (at < 0) return DLAB_OK;
        seqs[*n + j] = at;
    }
    dlab_seq *leader = &st->seqs[first];
    const int64_t live_before = leader->n_live; /* of a primed prefix: not a hit */
    begin_sequence(leader, r, 0, -1);
    const dlab_status status = st->open(st->ctx, first, 1, err);
    if (status != DLAB_OK) {
        take_back(leader, r->n_prompt);
        return status == DLAB_EFULL ? DLAB_OK : status;
    }
    for (int j = 1; j < samples; j++) begin_sequence(&st->seqs[seqs[*n + j]], r, j, first);
    for (int j = 0; j < samples; j++) {
        st->admitted[st->n_admitted] = r->id + j;
        st->admitted_cached[st->n_admitted++] = leader->n_live - live_before;
    }
    if (st->looks_up) {
        st->asked_tokens += r->n_prompt;
        st->hit_tokens += leader->n_live - live_before;
    }
    *n += samples;
    st->head = q->next;
    if (!st->head) st->tail = NULL;
    q->next = st->spare;
    st->spare = q;
    return DLAB_OK;
}
