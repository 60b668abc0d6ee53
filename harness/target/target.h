/* What is measured, behind one table: the engine in process, the null target that measures the harness itself. The driver
 * (harness/run/drive.h) submits requests when they are due, steps the target, and stamps what comes back. */
#ifndef DLAB_HARNESS_TARGET_TARGET_H
#define DLAB_HARNESS_TARGET_TARGET_H

#include "engine/engine.h"
#include "results/run.h"

typedef struct dlab_target dlab_target;

typedef struct {
    const char *name, *summary;
    /* Plan, model and needs as for dlab_engine_create; model may be NULL for the null target. */
    dlab_status (*create)(const dlab_plan *plan, const dlab_model *model, const dlab_engine_needs *needs,
                          dlab_target **out, dlab_error *err);
    void (*destroy)(dlab_target *t);
    dlab_status (*submit)(dlab_target *t, const dlab_engine_request *r, dlab_error *err);
    bool (*busy)(const dlab_target *t);
    dlab_status (*step)(dlab_target *t, dlab_step *out, dlab_error *err);
    void (*cancel)(dlab_target *t);
    dlab_status (*prime)(dlab_target *t, const int32_t *ids, int64_t n, int32_t *handle, dlab_error *err);
    dlab_status (*score)(dlab_target *t, const int32_t *ids, int64_t n, int64_t n_last, double *nll, int32_t *top1,
                         dlab_error *err); /* NULL: no quality on this target */
    /* kv: NULL where it is not wanted; making it takes a walk over the store's tables. */
    void (*memory)(const dlab_target *t, dlab_mem_stats *mem, dlab_kv_stats *kv);
    void (*reset_peaks)(dlab_target *t);
    const dlab_plan *(*plan)(const dlab_target *t); /* effective values */
} dlab_target_ops;

struct dlab_target {
    const dlab_target_ops *ops; /* first member */
};

/* generated from the folder; NULL-terminated: engine, null */
extern const dlab_target_ops *const dlab_targets[];
const dlab_target_ops *dlab_target_find(const char *name); /* or NULL */

#endif
