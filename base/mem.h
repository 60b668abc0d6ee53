/* Accounted memory: every large buffer belongs to a pool, all pools share one limit, each pool keeps its high-water
 * mark. Not thread safe: one owner thread allocates. A refusal is DLAB_EOOM and says what was asked and what was left. */
#ifndef DLAB_BASE_MEM_H
#define DLAB_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DLAB_POOL_LIST(X)                                                                                              \
    X(WEIGHTS, "weights")                                                                                              \
    X(KV, "kv")                                                                                                        \
    X(ACTIVATIONS, "activations")                                                                                      \
    X(SCRATCH, "scratch")

typedef enum {
#define DLAB_POOL_ENUM(name, text) DLAB_POOL_##name,
    DLAB_POOL_LIST(DLAB_POOL_ENUM)
#undef DLAB_POOL_ENUM
        DLAB_POOL_N,
    DLAB_POOL_NONE = DLAB_POOL_N /* not counted: for what goes back to the system at once */
} dlab_pool;

const char *dlab_pool_name(dlab_pool p);

typedef struct {
    size_t used_bytes, peak_bytes;
} dlab_pool_stats;

typedef struct {
    dlab_pool_stats pool[DLAB_POOL_N];
    size_t used_bytes, peak_bytes; /* of all pools together */
    size_t limit_bytes;            /* 0: none */
    uint64_t n_allocs;             /* allocations and charges since creation; tests prove a timed step makes none */
} dlab_mem_stats;

typedef struct dlab_mem dlab_mem;

/* limit_bytes 0: no limit. */
dlab_status dlab_mem_create(size_t limit_bytes, dlab_mem **out, dlab_error *err);
void dlab_mem_destroy(dlab_mem *m); /* asserts that nothing is left charged in debug builds */
/* Zeroed, 64-byte aligned (pages of their own when page_align). *out is NULL on failure. */
dlab_status dlab_mem_alloc(dlab_mem *m, dlab_pool pool, size_t bytes, int page_align, void **out, dlab_error *err);
void dlab_mem_free(dlab_mem *m, dlab_pool pool, void *ptr, size_t bytes);
/* Counts memory that somebody else maps (a model file) against a pool and the limit; DLAB_POOL_NONE: nothing to do. */
dlab_status dlab_mem_charge(dlab_mem *m, dlab_pool pool, size_t bytes, dlab_error *err);
void dlab_mem_discharge(dlab_mem *m, dlab_pool pool, size_t bytes);
void dlab_mem_get_stats(const dlab_mem *m, dlab_mem_stats *out);
void dlab_mem_reset_peaks(dlab_mem *m); /* peaks := what is used now */

#endif
