#include "engine/kv/prefix_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t xx_hash(uint64_t prefix, const int32_t *ids, size_t n) { return XXH64(ids, n * sizeof *ids, prefix); }

dlab_status dlab_prefix_index_create(int64_t n_blocks, int64_t block_tokens, dlab_prefix_hash hash,
                                     dlab_prefix_index *out, dlab_error *err)
{
    uint64_t buckets = 1;
    while (buckets < (uint64_t)n_blocks) buckets *= 2;
    *out = (dlab_prefix_index){
        .n_blocks = n_blocks,
        .block_tokens = block_tokens,
        .hash = hash ? hash : xx_hash,
        .mask = buckets - 1,
        .buckets = calloc(buckets, sizeof *out->buckets),
        .entries = calloc((size_t)n_blocks + 1, sizeof *out->entries),
        .ids = calloc((size_t)n_blocks + 1, (size_t)block_tokens * sizeof *out->ids),
    };
    if (out->buckets && out->entries && out->ids) return DLAB_OK;
    dlab_prefix_index_destroy(out);
    return DLAB_FAIL(err, DLAB_EOOM, "prefix cache: no memory for an index of %lld blocks", (long long)n_blocks);
}

void dlab_prefix_index_destroy(dlab_prefix_index *x)
{
    free(x->buckets);
    free(x->entries);
    free(x->ids);
    *x = (dlab_prefix_index){0};
}

static size_t ids_bytes(const dlab_prefix_index *x) { return (size_t)x->block_tokens * sizeof *x->ids; }

int64_t dlab_prefix_index_find(const dlab_prefix_index *x, dlab_prefix_link at, const int32_t *ids,
                               dlab_prefix_link *link)
{
    uint64_t hash = x->hash(at.hash, ids, (size_t)x->block_tokens);
    for (int64_t b = x->buckets[hash & x->mask]; b; b = x->entries[b].next) {
        const dlab_prefix_entry *e = &x->entries[b];
        if (e->link.hash != hash || e->before.serial != at.serial) continue;
        if (memcmp(x->ids + b * x->block_tokens, ids, ids_bytes(x)) != 0) continue;
        *link = e->link;
        return b;
    }
    return 0;
}

dlab_prefix_link dlab_prefix_index_add(dlab_prefix_index *x, int64_t block, dlab_prefix_link at, const int32_t *ids)
{
    uint64_t hash = x->hash(at.hash, ids, (size_t)x->block_tokens);
    int64_t *bucket = &x->buckets[hash & x->mask];
    dlab_prefix_entry *e = &x->entries[block];
    assert(e->link.serial == 0 && "a block is in the index once");
    *e = (dlab_prefix_entry){.link = {.serial = ++x->last_serial, .hash = hash}, .before = at, .next = *bucket};
    *bucket = block;
    memcpy(x->ids + block * x->block_tokens, ids, ids_bytes(x));
    x->n++;
    return e->link;
}

void dlab_prefix_index_remove(dlab_prefix_index *x, int64_t block)
{
    dlab_prefix_entry *e = &x->entries[block];
    assert(e->link.serial != 0 && "a block that is not in the index");
    int64_t *at = &x->buckets[e->link.hash & x->mask];
    while (*at != block) at = &x->entries[*at].next;
    *at = e->next;
    *e = (dlab_prefix_entry){0};
    x->n--;
}
