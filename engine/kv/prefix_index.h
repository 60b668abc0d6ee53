/* Which full blocks hold which text: a hash table of blocks by the chain of blocks before them and their own tokens. A hash
 * alone never decides: the tokens are compared, and so is the identity of the block before, a serial number that is given
 * once only, so that a block that was dropped and filled anew is not mistaken for what it was. */
#ifndef DLAB_ENGINE_KV_PREFIX_INDEX_H
#define DLAB_ENGINE_KV_PREFIX_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef uint64_t (*dlab_prefix_hash)(uint64_t prefix, const int32_t *ids, size_t n);

/* A place in a chain, behind some block: its identity and the hash of all tokens up to its end. Zero: a text's begin. */
typedef struct {
    uint64_t serial, hash;
} dlab_prefix_link;

typedef struct {
    dlab_prefix_link link, before; /* link.serial 0: not in the index */
    int64_t next;                  /* block of the same bucket; 0: none */
} dlab_prefix_entry;

typedef struct {
    int64_t n_blocks, block_tokens;
    int64_t n; /* blocks in the index */
    dlab_prefix_hash hash;
    uint64_t last_serial, mask; /* buckets − 1 */
    int64_t *buckets;           /* first block of each; 0: none */
    dlab_prefix_entry *entries; /* [1 + n_blocks] */
    int32_t *ids;               /* [1 + n_blocks, block_tokens] */
} dlab_prefix_index;

/* For blocks 1 … n_blocks. hash NULL: xxHash64. */
dlab_status dlab_prefix_index_create(int64_t n_blocks, int64_t block_tokens, dlab_prefix_hash hash,
                                     dlab_prefix_index *out, dlab_error *err);
void dlab_prefix_index_destroy(dlab_prefix_index *x);
/* The block that holds ids [block_tokens] behind `at`, 0 if there is none; *link: the place behind it. */
int64_t dlab_prefix_index_find(const dlab_prefix_index *x, dlab_prefix_link at, const int32_t *ids,
                               dlab_prefix_link *link);
/* Adds a block that is not in it, as the one that holds ids behind `at`; returns the place behind it. */
dlab_prefix_link dlab_prefix_index_add(dlab_prefix_index *x, int64_t block, dlab_prefix_link at, const int32_t *ids);
/* Blocks that follow it in a chain stay, but nothing leads to them any more. */
void dlab_prefix_index_remove(dlab_prefix_index *x, int64_t block);

#endif
