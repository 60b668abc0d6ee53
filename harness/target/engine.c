/* The engine in process. */
#include <stdlib.h>

#include "harness/target/target.h"

typedef struct {
    dlab_target base;
    dlab_engine *engine;
} engine_target;

extern const dlab_target_ops dlab_target_engine;

static dlab_engine *engine_of(const dlab_target *t) { return ((const engine_target *)t)->engine; }

static void destroy(dlab_target *t)
{
    if (!t) return;
    dlab_engine_destroy(engine_of(t));
    free(t);
}

static dlab_status create(const dlab_target_setup *setup, dlab_target **out, dlab_error *err)
{
    *out = NULL;
    engine_target *t = calloc(1, sizeof *t);
    if (!t) return DLAB_FAIL(err, DLAB_EOOM, "no memory for a target");
    t->base.ops = &dlab_target_engine;
    dlab_status st = dlab_engine_create(setup->plan, setup->model, setup->needs, &t->engine, err);
    if (st != DLAB_OK) {
        free(t);
        return st;
    }
    *out = &t->base;
    return DLAB_OK;
}

static dlab_status submit(dlab_target *t, const dlab_engine_request *r, dlab_error *err)
{
    return dlab_engine_submit(engine_of(t), r, err);
}

static bool busy(const dlab_target *t) { return dlab_engine_busy(engine_of(t)); }

static dlab_status step(dlab_target *t, int64_t deadline_ns, dlab_target_step *out, dlab_error *err)
{
    (void)deadline_ns;
    *out = (dlab_target_step){0};
    return dlab_engine_step(engine_of(t), &out->step, err);
}

static void cancel(dlab_target *t, bool keep_cache) { dlab_engine_cancel(engine_of(t), keep_cache); }
static void gate(dlab_target *t, bool open) { dlab_engine_gate(engine_of(t), open); }

static dlab_status prime(dlab_target *t, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err)
{
    return dlab_engine_prime(engine_of(t), ids, n, handle, err);
}

static dlab_status score(dlab_target *t, const int32_t *ids, int64_t n, int64_t n_last, double *nll, int32_t *top1,
                         dlab_error *err)
{
    return dlab_engine_score(engine_of(t), ids, n, n_last, nll, top1, NULL, err);
}

static void memory(const dlab_target *t, dlab_mem_stats *mem, dlab_kv_stats *kv)
{
    dlab_engine_memory(engine_of(t), mem);
    if (kv) dlab_engine_kv(engine_of(t), kv);
}

static void reset_peaks(dlab_target *t) { dlab_engine_reset_peaks(engine_of(t)); }

static const dlab_plan *plan_of(const dlab_target *t) { return dlab_engine_plan(engine_of(t)); }

const dlab_target_ops dlab_target_engine = {.name = "engine",
                                            .summary = "the engine in this process",
                                            .create = create,
                                            .destroy = destroy,
                                            .submit = submit,
                                            .busy = busy,
                                            .step = step,
                                            .cancel = cancel,
                                            .gate = gate,
                                            .prime = prime,
                                            .score = score,
                                            .memory = memory,
                                            .reset_peaks = reset_peaks,
                                            .plan = plan_of};
