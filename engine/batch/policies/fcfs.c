/* B3: first come, first served. */
#include <stdlib.h>

#include "engine/batch/policy.h"

extern const dlab_policy_ops dlab_policy_fcfs;

typedef struct {
    dlab_policy base;
    dlab_queued_list waiting;
} fcfs;

static dlab_status create(const dlab_policy_opts *o, dlab_policy **out, dlab_error *err)
{
    (void)o;
    fcfs *p = calloc(1, sizeof *p);
    if (!p) return DLAB_FAIL(err, DLAB_EOOM, "policy fcfs: out of memory");
    p->base.ops = &dlab_policy_fcfs;
    *out = &p->base;
    return DLAB_OK;
}

static void destroy(dlab_policy *p) { free(p); }
static void push(dlab_policy *p, dlab_queued *q) { dlab_queued_append(&((fcfs *)p)->waiting, q, 0); }
static dlab_queued *first(const dlab_policy *p) { return ((const fcfs *)p)->waiting.first; }
static void take_out(dlab_policy *p, dlab_queued *q) { dlab_queued_unlink(&((fcfs *)p)->waiting, q, 0); }
static void pop(dlab_policy *p) { take_out(p, first(p)); }

const dlab_policy_ops dlab_policy_fcfs = {
    .name = "fcfs",
    .summary = "first come, first served (B3)",
    .create = create,
    .destroy = destroy,
    .push = push,
    .first = first,
    .pop = pop,
    .remove = take_out,
};
