/* The requests that wait: a policy decides which of them is next; the queue owns their nodes and finds them by id. */
#ifndef DLAB_ENGINE_BATCH_QUEUE_H
#define DLAB_ENGINE_BATCH_QUEUE_H

#include "engine/batch/policy.h"

enum { DLAB_QUEUE_CLASSES = 32 };

typedef struct {
    dlab_policy *policy;
    dlab_queued **by_id; /* [n_chains], a power of two; chained by id_next */
    size_t n_chains;
    dlab_queued *spare[DLAB_QUEUE_CLASSES]; /* nodes to use again, by size class, chained by id_next */
    int64_t n;                              /* requests that wait … */
    int64_t n_places;                       /* … and the places of the batch that they will take */
    int64_t pushed;                         /* ever */
} dlab_queue;

dlab_status dlab_queue_create(const dlab_policy_ops *policy, const dlab_policy_opts *opts, dlab_queue *out,
                              dlab_error *err);
void dlab_queue_destroy(dlab_queue *q);
/* A copy of the request waits from now on; step: how many the engine has made. */
dlab_status dlab_queue_push(dlab_queue *q, const dlab_engine_request *r, int64_t step, dlab_error *err);
/* NULL: nobody waits. */
const dlab_queued *dlab_queue_first(const dlab_queue *q);
/* The first has started. */
void dlab_queue_pop(dlab_queue *q);
/* Withdraws the request of this id; false: none waits. */
bool dlab_queue_remove(dlab_queue *q, int64_t id);
void dlab_queue_clear(dlab_queue *q);

#endif
