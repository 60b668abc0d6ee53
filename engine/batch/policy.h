/* Queue policies, one file each in engine/batch/policies: who of the waiting requests starts next. Nobody waits for ever
 * under any of them, and every operation takes O(log n) at most and no memory but the request's own node: 100 000 waiting
 * requests slow no step. */
#ifndef DLAB_ENGINE_BATCH_POLICY_H
#define DLAB_ENGINE_BATCH_POLICY_H

#include "engine/engine.h"

typedef struct dlab_queued dlab_queued;

typedef struct {
    dlab_queued *prev, *next;
} dlab_links;

/* A waiting request. */
struct dlab_queued {
    dlab_engine_request request; /* prompt points at `prompt` */
    int64_t step;                /* the engine's steps when it came */
    int64_t order;               /* of those that were ever queued, it is the order-th */
    dlab_queued *id_next;        /* of the queue, which finds it by its id */
    union {                      /* of the policy */
        dlab_links links[2];
        struct {
            dlab_queued *left, *right, *parent;
            int64_t key;
            int32_t rank;
        } heap;
    } hook;
    int32_t size_class; /* `prompt` has room for 1 << size_class ids */
    int32_t prompt[];
};

/* Places of the batch that it takes. */
static inline int64_t dlab_queued_places(const dlab_queued *q)
{
    return q->request.samples > 1 ? q->request.samples : 1;
}

typedef struct {
    int64_t batch_size; /* batch.size */
    int64_t ageing;     /* batch.ageing */
} dlab_policy_opts;

typedef struct dlab_policy dlab_policy;

typedef struct {
    const char *name, *summary;
    dlab_status (*create)(const dlab_policy_opts *o, dlab_policy **out, dlab_error *err);
    void (*destroy)(dlab_policy *p); /* the nodes are the queue's */
    void (*push)(dlab_policy *p, dlab_queued *q);
    dlab_queued *(*first)(const dlab_policy *p);    /* who starts next; NULL: nobody waits */
    void (*pop)(dlab_policy *p);                    /* the first starts */
    void (*remove)(dlab_policy *p, dlab_queued *q); /* one that waits is withdrawn */
    void (*begin)(dlab_policy *p); /* a batch begins whose requests start together; NULL: that is all the same here */
} dlab_policy_ops;

struct dlab_policy {
    const dlab_policy_ops *ops; /* first member */
};

extern const dlab_policy_ops *const dlab_policies[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_policy_ops *dlab_policy_find(const char *name);

/* ---- lists through links[k] of the hooks --------------------------------------------------------------------------- */

typedef struct {
    dlab_queued *first, *last;
} dlab_queued_list;

void dlab_queued_append(dlab_queued_list *l, dlab_queued *q, int k);
void dlab_queued_unlink(dlab_queued_list *l, dlab_queued *q, int k);

#endif
