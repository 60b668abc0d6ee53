#include "engine/kv/block_pool.h"

#include <assert.h>
#include <stdlib.h>

dlab_status dlab_block_pool_create(int64_t n, dlab_block_pool *out, dlab_error *err)
{
    *out = (dlab_block_pool){.n = n, .blocks = calloc((size_t)n + 1, sizeof *out->blocks)};
    if (!out->blocks)
        return DLAB_FAIL(err, DLAB_EOOM, "kv store: no memory for the books of %lld blocks", (long long)n);
    dlab_block_pool_order(out);
    return DLAB_OK;
}

void dlab_block_pool_destroy(dlab_block_pool *p)
{
    free(p->blocks);
    *p = (dlab_block_pool){0};
}

static void push_free(dlab_block_pool *p, int64_t block)
{
    p->blocks[block].next = p->free;
    p->free = block;
    p->n_free++;
}

void dlab_block_pool_order(dlab_block_pool *p)
{
    p->free = 0;
    p->n_free = 0;
    for (int64_t b = p->n; b > 0; b--) {
        if (p->blocks[b].refs == 0 && !p->blocks[b].kept) push_free(p, b);
    }
}

static void cache(dlab_block_pool *p, int64_t block)
{
    dlab_block *b = &p->blocks[block];
    b->prev = p->newest;
    b->next = 0;
    *(p->newest ? &p->blocks[p->newest].next : &p->oldest) = block;
    p->newest = block;
    p->n_cached++;
}

static void uncache(dlab_block_pool *p, int64_t block)
{
    dlab_block *b = &p->blocks[block];
    *(b->prev ? &p->blocks[b->prev].next : &p->oldest) = b->next;
    *(b->next ? &p->blocks[b->next].prev : &p->newest) = b->prev;
    b->prev = b->next = 0;
    p->n_cached--;
}

int64_t dlab_block_pool_take(dlab_block_pool *p)
{
    int64_t block = p->free;
    if (!block) return 0;
    dlab_block *b = &p->blocks[block];
    assert(b->refs == 0 && !b->kept);
    p->free = b->next;
    p->n_free--;
    *b = (dlab_block){.refs = 1};
    p->n_refs++;
    return block;
}

void dlab_block_pool_hold(dlab_block_pool *p, int64_t block)
{
    dlab_block *b = &p->blocks[block];
    assert(b->refs > 0 || b->kept);
    if (b->refs++ == 0) uncache(p, block);
    p->n_refs++;
}

void dlab_block_pool_release(dlab_block_pool *p, int64_t block)
{
    dlab_block *b = &p->blocks[block];
    assert(b->refs > 0);
    p->n_refs--;
    if (--b->refs > 0) return;
    if (b->kept)
        cache(p, block);
    else
        push_free(p, block);
}

void dlab_block_pool_keep(dlab_block_pool *p, int64_t block)
{
    assert(p->blocks[block].refs > 0 && !p->blocks[block].kept);
    p->blocks[block].kept = true;
}

void dlab_block_pool_forget(dlab_block_pool *p, int64_t block)
{
    dlab_block *b = &p->blocks[block];
    assert(b->kept);
    b->kept = false;
    if (b->refs > 0) return;
    uncache(p, block);
    push_free(p, block);
}

/* ---- the check ---- */

typedef struct {
    int64_t refs;
    bool free, cached, indexed;
} finding;

static dlab_status check_tables(const dlab_block_pool *p, const dlab_block_table *tables, int64_t n_tables, finding *f,
                                dlab_error *err)
{
    int64_t refs = 0;
    for (int64_t t = 0; t < n_tables; t++) {
        for (int64_t i = 0; i < tables[t].n; i++) {
            int64_t b = tables[t].blocks[i];
            if (b < 1 || b > p->n) {
                return DLAB_FAIL(err, DLAB_EINTERNAL, "sequence %lld has block %lld in place %lld, of 1 … %lld",
                                 (long long)t, (long long)b, (long long)i, (long long)p->n);
            }
            f[b].refs++;
        }
        refs += tables[t].n;
    }
    if (refs == p->n_refs) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%lld references counted, %lld in the tables", (long long)p->n_refs,
                     (long long)refs);
}

static dlab_status check_lists(const dlab_block_pool *p, finding *f, dlab_error *err)
{
    int64_t n_free = 0, n_cached = 0, prev = 0;
    for (int64_t b = p->free; b && n_free <= p->n; b = p->blocks[b].next, n_free++) f[b].free = true;
    for (int64_t b = p->oldest; b && n_cached <= p->n; prev = b, b = p->blocks[b].next, n_cached++) {
        f[b].cached = true;
        if (p->blocks[b].prev != prev) {
            return DLAB_FAIL(err, DLAB_EINTERNAL, "cached block %lld follows %lld, and says %lld", (long long)b,
                             (long long)prev, (long long)p->blocks[b].prev);
        }
    }
    if (n_free == p->n_free && n_cached == p->n_cached && prev == p->newest) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%lld blocks in the free list, counted %lld; %lld cached, counted %lld",
                     (long long)n_free, (long long)p->n_free, (long long)n_cached, (long long)p->n_cached);
}

static dlab_status check_index(const dlab_prefix_index *x, finding *f, dlab_error *err)
{
    int64_t n = 0;
    for (uint64_t i = 0; i <= x->mask; i++) {
        for (int64_t b = x->buckets[i]; b && n <= x->n; b = x->entries[b].next, n++) {
            f[b].indexed = true;
            if (x->entries[b].link.serial == 0 || (x->entries[b].link.hash & x->mask) != i) {
                return DLAB_FAIL(err, DLAB_EINTERNAL, "block %lld lies in a bucket of the index that is not its own",
                                 (long long)b);
            }
        }
    }
    if (n == x->n) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "the index reaches %lld blocks and counts %lld", (long long)n,
                     (long long)x->n);
}

static dlab_status check_blocks(const dlab_block_pool *p, const finding *f, dlab_error *err)
{
    int64_t live = 0;
    for (int64_t b = 1; b <= p->n; b++) {
        const dlab_block *k = &p->blocks[b];
        bool right = k->refs == f[b].refs && f[b].indexed == k->kept && f[b].cached == (k->refs == 0 && k->kept) &&
                     f[b].free == (k->refs == 0 && !k->kept);
        if (!right) {
            return DLAB_FAIL(
                err, DLAB_EINTERNAL,
                "block %lld: %lld references counted, %lld in the tables; kept %d, in the index %d; in the "
                "list of free blocks %d, of cached ones %d",
                (long long)b, (long long)k->refs, (long long)f[b].refs, k->kept, f[b].indexed, f[b].free, f[b].cached);
        }
        live += k->refs > 0;
    }
    if (p->n_free + p->n_cached + live == p->n) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EINTERNAL, "%lld free, %lld cached and %lld live blocks are not %lld",
                     (long long)p->n_free, (long long)p->n_cached, (long long)live, (long long)p->n);
}

dlab_status dlab_block_pool_check(const dlab_block_pool *p, const dlab_prefix_index *index,
                                  const dlab_block_table *tables, int64_t n_tables, dlab_error *err)
{
    finding *f = calloc((size_t)p->n + 1, sizeof *f);
    if (!f) return DLAB_FAIL(err, DLAB_EOOM, "no memory to check %lld blocks", (long long)p->n);
    dlab_status st;
    DLAB_TRY_DONE(st, check_tables(p, tables, n_tables, f, err));
    DLAB_TRY_DONE(st, check_lists(p, f, err));
    if (index) DLAB_TRY_DONE(st, check_index(index, f, err));
    st = check_blocks(p, f, err);
done:
    free(f);
    return st;
}
