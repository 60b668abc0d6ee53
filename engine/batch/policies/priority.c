/* B4: larger priorities first, with ageing. One level of priority is worth batch.ageing steps of waiting, so who came at step
 * t with priority p stands at t − p · ageing, and the smallest is first. That is fixed when it comes: waiting moves everybody
 * alike. Whoever comes more than (p' − p) · ageing steps later stands behind, whatever happens: nobody starves.
 *
 * A leftist heap through the nodes: the right spine is never longer than log2 n, and merging walks right spines alone. */
#include <stdlib.h>

#include "engine/batch/policy.h"

extern const dlab_policy_ops dlab_policy_priority;

typedef struct {
    dlab_policy base;
    int64_t ageing;
    dlab_queued *root;
} heap;

static dlab_status create(const dlab_policy_opts *o, dlab_policy **out, dlab_error *err)
{
    heap *p = calloc(1, sizeof *p);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "policy priority: out of memory");
    p->base.ops = &dlab_policy_priority;
    p->ageing = o->ageing;
    *out = &p->base;
    return DLAB_OK;
}

static void destroy(dlab_policy *p) { free(p); }

/* Equals go in order of arrival. */
static bool before(const dlab_queued *a, const dlab_queued *b)
{
    if (a->hook.heap.key != b->hook.heap.key) return a->hook.heap.key < b->hook.heap.key;
    return a->order < b->order;
}

static int32_t rank_of(const dlab_queued *q) { return q ? q->hook.heap.rank : 0; }

/* The child of lower rank on the right; true if the node's own rank changed. */
static bool lean(dlab_queued *q)
{
    if (rank_of(q->hook.heap.left) < rank_of(q->hook.heap.right)) {
        dlab_queued *left = q->hook.heap.left;
        q->hook.heap.left = q->hook.heap.right;
        q->hook.heap.right = left;
    }
    const int32_t rank = rank_of(q->hook.heap.right) + 1;
    const bool changed = rank != q->hook.heap.rank;
    q->hook.heap.rank = rank;
    return changed;
}

static dlab_queued *merge(dlab_queued *a, dlab_queued *b)
{
    if (!a) return b;
    if (!b) return a;
    if (before(b, a)) {
        dlab_queued *t = a;
        a = b;
        b = t;
    }
    dlab_queued *right = merge(a->hook.heap.right, b);
    a->hook.heap.right = right;
    right->hook.heap.parent = a;
    lean(a);
    return a;
}

static void push(dlab_policy *base, dlab_queued *q)
{
    heap *p = (heap *)base;
    q->hook.heap.left = q->hook.heap.right = q->hook.heap.parent = NULL;
    q->hook.heap.rank = 1;
    q->hook.heap.key = q->step - q->request.priority * p->ageing;
    p->root = merge(p->root, q);
    p->root->hook.heap.parent = NULL;
}

static dlab_queued *first(const dlab_policy *p) { return ((const heap *)p)->root; }

/* What is below takes its place. Ranks then shrink upwards for as long as they change, to 1, 2, 3, …: log2 n times at most. */
static void take_out(dlab_policy *base, dlab_queued *q)
{
    heap *p = (heap *)base;
    dlab_queued *up = q->hook.heap.parent, *rest = merge(q->hook.heap.left, q->hook.heap.right);
    if (rest) rest->hook.heap.parent = up;
    if (!up)
        p->root = rest;
    else if (up->hook.heap.left == q)
        up->hook.heap.left = rest;
    else
        up->hook.heap.right = rest;
    while (up && lean(up)) up = up->hook.heap.parent;
}

static void pop(dlab_policy *p) { take_out(p, first(p)); }

const dlab_policy_ops dlab_policy_priority = {
    .name = "priority",
    .summary = "larger priorities first; batch.ageing steps of waiting outweigh one level (B4)",
    .create = create,
    .destroy = destroy,
    .push = push,
    .first = first,
    .pop = pop,
    .remove = take_out,
};
