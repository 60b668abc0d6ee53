/* From a workload and a vocabulary to requests with exact token counts. Same seed, same tokens. */
#ifndef DLAB_HARNESS_WORKLOAD_WORKLOAD_H
#define DLAB_HARNESS_WORKLOAD_WORKLOAD_H

#include "harness/spec/spec.h"

typedef struct {
    int64_t n;
    int32_t *ids;                     /* [Σ (depth + prompt)] */
    int64_t *offset;                  /* [n] of a request's first id (its depth tokens, then its prompt) */
    int64_t *depth, *prompt, *output; /* [n] tokens */
    uint64_t *seed;                   /* [n] for sampling */
} dlab_requests;

/* batch_size: the plan's, used when workload.requests is 0. vocab: ids are drawn from [0, vocab), control ids excepted by
 * the caller's `first_id` (ids below it are not drawn). */
dlab_status dlab_workload_build(const dlab_workload *w, int64_t batch_size, int32_t first_id, int32_t vocab,
                                dlab_requests *out, dlab_error *err);
void dlab_requests_free(dlab_requests *r);
/* What the engine must be able to hold. */
void dlab_workload_needs(const dlab_workload *w, int64_t batch_size, dlab_engine_needs *out);

#endif
