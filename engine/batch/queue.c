#include "engine/batch/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

const dlab_policy_ops *dlab_policy_find(const char *name)
{
    for (size_t i = 0; dlab_policies[i]; i++) {
        if (strcmp(dlab_policies[i]->name, name) == 0) return dlab_policies[i];
    }
    return NULL;
}

/* ---- lists --------------------------------------------------------------------------------------------------------- */

void dlab_queued_append(dlab_queued_list *l, dlab_queued *q, int k)
{
    q->hook.links[k] = (dlab_links){.prev = l->last};
    if (l->last)
        l->last->hook.links[k].next = q;
    else
        l->first = q;
    l->last = q;
}

void dlab_queued_unlink(dlab_queued_list *l, dlab_queued *q, int k)
{
    dlab_queued *prev = q->hook.links[k].prev, *next = q->hook.links[k].next;
    if (prev)
        prev->hook.links[k].next = next;
    else
        l->first = next;
    if (next)
        next->hook.links[k].prev = prev;
    else
        l->last = prev;
}

/* ---- by id --------------------------------------------------------------------------------------------------------- */

static dlab_queued **chain_of(const dlab_queue *q, int64_t id)
{
    uint64_t state = (uint64_t)id;
    return &q->by_id[dlab_splitmix64(&state) & (q->n_chains - 1)];
}

static void enter(dlab_queue *q, dlab_queued *node)
{
    dlab_queued **chain = chain_of(q, node->request.id);
    node->id_next = *chain;
    *chain = node;
}

static void leave(dlab_queue *q, const dlab_queued *node)
{
    dlab_queued **p = chain_of(q, node->request.id);
    while (*p != node) p = &(*p)->id_next;
    *p = node->id_next;
}

/* Chains stay one node long on average. */
static dlab_status widen(dlab_queue *q, dlab_error *err)
{
    if ((size_t)q->n < q->n_chains) return DLAB_OK;
    dlab_queued **old = q->by_id;
    const size_t n_old = q->n_chains;
    dlab_queued **wide = calloc(2 * n_old, sizeof(dlab_queued *));
    if (!wide) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a queue of %lld requests", (long long)q->n);
    q->by_id = wide;
    q->n_chains = 2 * n_old;
    for (size_t i = 0; i < n_old; i++) {
        for (dlab_queued *node = old[i], *next; node; node = next) {
            next = node->id_next;
            enter(q, node);
        }
    }
    free(old);
    return DLAB_OK;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static dlab_queued *take_node(dlab_queue *q, int64_t n_prompt)
{
    int32_t size_class = 4;
    while ((int64_t)1 << size_class < n_prompt) size_class++;
    dlab_queued *node = q->spare[size_class];
    if (node) {
        q->spare[size_class] = node->id_next;
        return node;
    }
    node = malloc(sizeof *node + ((size_t)1 << size_class) * sizeof node->prompt[0]);
    if (node) node->size_class = size_class;
    return node;
}

static void give_node(dlab_queue *q, dlab_queued *node)
{
    leave(q, node);
    q->n--;
    q->n_places -= dlab_queued_places(node);
    node->id_next = q->spare[node->size_class];
    q->spare[node->size_class] = node;
}

/* ---- the queue ----------------------------------------------------------------------------------------------------- */

dlab_status dlab_queue_create(const dlab_policy_ops *policy, const dlab_policy_opts *opts, dlab_queue *out,
                              dlab_error *err)
{
    *out = (dlab_queue){.n_chains = 64};
    out->by_id = calloc(out->n_chains, sizeof(dlab_queued *));
    if (!out->by_id) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a queue");
    return policy->create(opts, &out->policy, err);
}

void dlab_queue_destroy(dlab_queue *q)
{
    if (q->policy) {
        dlab_queue_clear(q);
        q->policy->ops->destroy(q->policy);
    }
    for (int i = 0; i < DLAB_QUEUE_CLASSES; i++) {
        for (dlab_queued *node = q->spare[i], *next; node; node = next) {
            next = node->id_next;
            free(node);
        }
    }
    free(q->by_id);
    *q = (dlab_queue){0};
}

dlab_status dlab_queue_push(dlab_queue *q, const dlab_engine_request *r, int64_t step, dlab_error *err)
{
    DLAB_TRY(widen(q, err));
    dlab_queued *node = r->n_prompt <= INT32_MAX / 2 ? take_node(q, r->n_prompt) : NULL;
    if (!node) return DLAB_FAIL(err, DLAB_EOOM, "request %lld: no memory for its prompt", (long long)r->id);
    node->request = *r;
    node->request.prompt = node->prompt;
    memcpy(node->prompt, r->prompt, (size_t)r->n_prompt * sizeof *node->prompt);
    node->step = step;
    node->order = q->pushed++;
    q->n++;
    q->n_places += dlab_queued_places(node);
    enter(q, node);
    q->policy->ops->push(q->policy, node);
    return DLAB_OK;
}

const dlab_queued *dlab_queue_first(const dlab_queue *q) { return q->policy->ops->first(q->policy); }

void dlab_queue_pop(dlab_queue *q)
{
    dlab_queued *node = q->policy->ops->first(q->policy);
    q->policy->ops->pop(q->policy);
    give_node(q, node);
}

bool dlab_queue_remove(dlab_queue *q, int64_t id)
{
    dlab_queued *node = *chain_of(q, id);
    while (node && node->request.id != id) node = node->id_next;
    if (!node) return false;
    q->policy->ops->remove(q->policy, node);
    give_node(q, node);
    return true;
}

void dlab_queue_clear(dlab_queue *q)
{
    for (dlab_queued *node; (node = q->policy->ops->first(q->policy));) {
        q->policy->ops->remove(q->policy, node);
        give_node(q, node);
    }
    if (q->policy->ops->begin) q->policy->ops->begin(q->policy);
}
