/* The inside of the paged store (engine/kv/stores/paged.c), for its tests. */
#ifndef DLAB_ENGINE_KV_PAGED_H
#define DLAB_ENGINE_KV_PAGED_H

#include "engine/kv/block_pool.h"
#include "engine/kv/store.h"

typedef struct {
    int64_t live;     /* tokens written */
    int64_t n_blocks; /* of its table */
    int64_t n_linked; /* blocks, from the first on, whose place in the prefix index is known */
    int64_t marked;   /* length to rewind to; −1: none */
    bool open, retired;
} dlab_paged_seq;

typedef struct {
    dlab_kv_store base;
    dlab_kv_config cfg;
    dlab_kv_tails tails;
    dlab_buf k, v;            /* [layers, 1 + n_blocks, heads, region] */
    int64_t k_block, v_block; /* bytes of a block of one layer */
    int64_t max_blocks;       /* of a sequence */
    dlab_block_pool pool;
    dlab_prefix_index index; /* with the prefix cache only, like links */
    dlab_paged_seq *seqs;    /* [max_seqs] */
    int64_t *tables;         /* [max_seqs, max_blocks] */
    dlab_prefix_link *links; /* [max_seqs, max_blocks] the place behind each block in the prefix index */
    int64_t *filled;         /* [1 + n_blocks] scratch of stats, 0 between calls */
    int64_t n_evictions, n_copies;
} dlab_kv_paged;

/* Members of dlab_kv_store_ops that have a file of their own (engine/kv/paged_swap.c). */
void dlab_kv_paged_measure(const dlab_kv_store *s, int seq, dlab_kv_image *out);
dlab_status dlab_kv_paged_swap(dlab_kv_store *s, int seq, dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err);

/* dlab_block_pool_check for the store, and its own books; DLAB_EINTERNAL says what is wrong. */
dlab_status dlab_kv_paged_check(const dlab_kv_store *s, dlab_error *err);

#endif
