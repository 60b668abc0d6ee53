/* The blocks of a paged store, numbered 1 … n: who holds each, which are free, and which are cached: held by no sequence, but
 * kept because the prefix index knows them. Bookkeeping only; what a block contains is the store's business. Number 0 means
 * none (in the store's buffers it is the block that padding rows look at). All O(1) but create, order and check. */
#ifndef DLAB_ENGINE_KV_BLOCK_POOL_H
#define DLAB_ENGINE_KV_BLOCK_POOL_H

#include <stdbool.h>

#include "engine/kv/prefix_index.h"

typedef struct {
    int64_t refs;       /* sequences that hold it */
    int64_t prev, next; /* in the list of cached blocks; next alone in that of free ones */
    bool kept;          /* in the prefix index */
} dlab_block;

typedef struct {
    int64_t n, n_free, n_cached;
    int64_t n_refs;         /* of all blocks together */
    int64_t free;           /* the first of the free ones */
    int64_t oldest, newest; /* of the cached ones, by when they were released */
    dlab_block *blocks;     /* [1 + n] */
} dlab_block_pool;

/* All free, to be taken in ascending order. */
dlab_status dlab_block_pool_create(int64_t n, dlab_block_pool *out, dlab_error *err);
void dlab_block_pool_destroy(dlab_block_pool *p);
/* A free block, now held once; 0: none is free. */
int64_t dlab_block_pool_take(dlab_block_pool *p);
/* One more holder of a block that is live or cached. */
void dlab_block_pool_hold(dlab_block_pool *p, int64_t block);
/* One holder fewer; the last one leaves it cached if it is kept (as the newest), else free. */
void dlab_block_pool_release(dlab_block_pool *p, int64_t block);
/* A live block is in the prefix index from now on; and a live or cached one no longer, which frees a cached one. */
void dlab_block_pool_keep(dlab_block_pool *p, int64_t block);
void dlab_block_pool_forget(dlab_block_pool *p, int64_t block);
/* Free blocks will be taken in ascending order again. */
void dlab_block_pool_order(dlab_block_pool *p);

/* A table [n] of blocks that one sequence holds, for the check. */
typedef struct {
    const int64_t *blocks;
    int64_t n;
} dlab_block_table;
/* What must hold at any time, for tests; DLAB_EINTERNAL says what does not: each block is exactly one of free, live and
 * cached, and the counts are right; references are what the tables hold; the index (NULL: none) reaches exactly the blocks
 * that are kept. */
dlab_status dlab_block_pool_check(const dlab_block_pool *p, const dlab_prefix_index *index,
                                  const dlab_block_table *tables, int64_t n_tables, dlab_error *err);

#endif
