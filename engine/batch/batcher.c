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

static int free_seq(const dlab_batch_state *st, int32_t primed)
{
    if (primed >= 0) return st->seqs[primed].running ? -1 : primed;
    for (int i = 0; i < st->n_seqs; i++) {
        if (!st->seqs[i].open) return i;
    }
    return -1;
}

dlab_status dlab_batch_admit(dlab_batch_state *st, int *seq, dlab_error *err)
{
    dlab_queued *q = st->head;
    *seq = q ? free_seq(st, q->request.primed) : -1;
    if (*seq < 0) return DLAB_OK;
    dlab_seq *s = &st->seqs[*seq];
    if (!s->open) DLAB_TRY(st->open(st->ctx, *seq, err));
    memcpy(s->ids + s->n_ids, q->request.prompt, (size_t)q->request.n_prompt * sizeof *s->ids);
    s->n_ids += q->request.n_prompt;
    s->running = true;
    s->finish = DLAB_FINISH_NONE;
    s->request = q->request.id;
    s->max_new = q->request.max_new;
    s->n_new = 0;
    s->eos = q->request.eos;
    s->seed = q->request.seed;
    st->admitted[st->n_admitted++] = s->request;
    st->head = q->next;
    if (!st->head) st->tail = NULL;
    q->next = st->spare;
    st->spare = q;
    return DLAB_OK;
}
