/* From a workload and a vocabulary to requests with exact token counts. Same seed, same tokens. */
#ifndef DLAB_HARNESS_WORKLOAD_WORKLOAD_H
#define DLAB_HARNESS_WORKLOAD_WORKLOAD_H

#include "harness/spec/spec.h"

typedef struct {
    int64_t n;                        /* prompts */
    int32_t samples;                  /* answers to each of them */
    int32_t *ids;                     /* [Σ (depth + prompt)] */
    int64_t *offset;                  /* [n] of a request's first id (its depth tokens, then its prompt) */
    int64_t *depth, *prompt, *output; /* [n] tokens */
    uint64_t *seed;                   /* [n] for sampling */
} dlab_requests;

/* What the requests are for. */
typedef struct {
    int64_t batch_size; /* the plan's, used when workload.requests is 0 */
    int64_t context;    /* the model's; 0: there is no model */
    /* ids are drawn from [first_id, vocab): control ids stand below first_id. Not read by dlab_workload_needs. */
    int32_t first_id, vocab;
    bool warmup; /* other ids in requests of the same lengths, so that no cache knows the measured ones */
} dlab_workload_host;

/* DLAB_EIMPOSSIBLE says what in the workload contradicts what. */
dlab_status dlab_workload_build(const dlab_workload *w, const dlab_workload_host *host, dlab_requests *out,
                                dlab_error *err);
void dlab_requests_free(dlab_requests *r);
/* What the engine must be able to hold for exactly these requests: drawn lengths are drawn here too, to know the longest. */
dlab_status dlab_workload_needs(const dlab_workload *w, const dlab_workload_host *host, dlab_engine_needs *out,
                                dlab_error *err);

#endif
