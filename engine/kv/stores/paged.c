/* K5: a pool of blocks of kv.block_size tokens, [layers, 1 + n_blocks, kv_heads, region] for K and for V, given out on
 * demand. Sequences may share blocks: forks, and texts that begin alike (kv.prefix_cache); a shared block is copied before it
 * is written. Block 0 is nobody's: padding rows look at it beyond the end of their sequence, and it stays zero.
 * Source: Kwon et al. 2023 (PagedAttention) §4. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/int.h"
#include "engine/kv/paged.h"

extern const dlab_kv_store_ops dlab_kv_store_paged;

static int64_t plane_block_bytes(const dlab_kv_config *cfg, const dlab_kv_layout *l)
{
    return cfg->n_kv_heads * dlab_kv_region_bytes(l, cfg->head_dim, cfg->block_tokens);
}

/* Of all layers, K and V. */
static int64_t block_bytes(const dlab_kv_config *cfg)
{
    return cfg->n_layers * (plane_block_bytes(cfg, &cfg->k) + plane_block_bytes(cfg, &cfg->v));
}

static int64_t max_segs(const dlab_kv_config *cfg) { return dlab_ceil_div(cfg->max_tokens, cfg->block_tokens); }

/* Without block 0. */
static int64_t count_blocks(const dlab_kv_config *cfg)
{
    if (cfg->pool_bytes == 0) return max_segs(cfg) * cfg->max_seqs;
    int64_t n = (cfg->pool_bytes - dlab_kv_tails_bytes(cfg, cfg->n_layers)) / block_bytes(cfg) - 1;
    return n > 0 ? n : 0;
}

static int64_t bytes(const dlab_kv_config *cfg)
{
    return (1 + count_blocks(cfg)) * block_bytes(cfg) + dlab_kv_tails_bytes(cfg, cfg->n_layers);
}

static dlab_kv_paged *self(dlab_kv_store *s) { return (dlab_kv_paged *)s; }
static const dlab_kv_paged *inside(const dlab_kv_store *s) { return (const dlab_kv_paged *)s; }
static int64_t *table_of(const dlab_kv_paged *s, int seq) { return s->tables + seq * s->max_blocks; }
static dlab_prefix_link *links_of(const dlab_kv_paged *s, int seq) { return s->links + seq * s->max_blocks; }

/* ---- life ---- */

static void destroy(dlab_kv_store *base)
{
    if (!base) return;
    dlab_kv_paged *s = self(base);
    dlab_device *dev = s->cfg.dev;
    dlab_kv_tails_destroy(&s->cfg, &s->tails);
    if (s->k.ptr) dev->ops->free(dev, DLAB_POOL_KV, s->k);
    if (s->v.ptr) dev->ops->free(dev, DLAB_POOL_KV, s->v);
    dlab_block_pool_destroy(&s->pool);
    dlab_prefix_index_destroy(&s->index);
    free(s->seqs);
    free(s->tables);
    free(s->links);
    free(s->filled);
    free(s);
}

static dlab_status check_config(const dlab_kv_config *cfg, dlab_error *err)
{
    if (cfg->block_tokens % cfg->k.group || cfg->block_tokens % cfg->v.group) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "paged store: blocks of %lld tokens cannot hold whole groups of %d (K) and %d (V) tokens; set "
                         "kv.block_size to a multiple",
                         (long long)cfg->block_tokens, cfg->k.group, cfg->v.group);
    }
    if (count_blocks(cfg) > 0) return DLAB_OK;
    int64_t tails = dlab_kv_tails_bytes(cfg, cfg->n_layers), block = block_bytes(cfg);
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "paged store: kv.pool is %lld bytes, and one token needs %lld: tails of %lld and two blocks (one for "
        "padding rows) of %lld tokens, %lld bytes each; give a larger kv.pool or a smaller kv.block_size",
        (long long)cfg->pool_bytes, (long long)(tails + 2 * block), (long long)tails, (long long)cfg->block_tokens,
        (long long)block);
}

static dlab_status create_books(dlab_kv_paged *s, dlab_error *err)
{
    const dlab_kv_config *cfg = &s->cfg;
    int64_t n = count_blocks(cfg);
    size_t seqs = (size_t)cfg->max_seqs, entries = seqs * (size_t)s->max_blocks;
    DLAB_TRY(dlab_block_pool_create(n, &s->pool, err));
    if (cfg->prefix_cache) {
        DLAB_TRY(dlab_prefix_index_create(n, cfg->block_tokens, cfg->hash, &s->index, err));
        s->links = calloc(entries, sizeof *s->links);
    }
    s->seqs = calloc(seqs, sizeof *s->seqs);
    s->tables = calloc(entries, sizeof *s->tables);
    s->filled = calloc((size_t)n + 1, sizeof *s->filled);
    if (s->seqs && s->tables && s->filled && (s->links || !cfg->prefix_cache)) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EOOM, "paged store: no memory for the block tables of %lld sequences of %lld tokens",
                     (long long)cfg->max_seqs, (long long)cfg->max_tokens);
}

/* The device's buffers, with zeros in block 0. */
static dlab_status create_buffers(dlab_kv_paged *s, dlab_error *err)
{
    const dlab_kv_config *cfg = &s->cfg;
    dlab_device *dev = cfg->dev;
    int64_t k_layer = (1 + s->pool.n) * s->k_block, v_layer = (1 + s->pool.n) * s->v_block;
    DLAB_TRY(dlab_kv_tails_create(cfg, cfg->n_layers, &s->tails, err));
    DLAB_TRY(dev->ops->alloc(dev, DLAB_POOL_KV, (size_t)(cfg->n_layers * k_layer), &s->k, err));
    DLAB_TRY(dev->ops->alloc(dev, DLAB_POOL_KV, (size_t)(cfg->n_layers * v_layer), &s->v, err));
    void *zeros = calloc(1, (size_t)(s->k_block > s->v_block ? s->k_block : s->v_block));
    dlab_status st = zeros ? DLAB_OK : DLAB_FAIL(err, DLAB_EOOM, "paged store: no memory for a block of zeros");
    for (int64_t i = 0; i < cfg->n_layers && st == DLAB_OK; i++) {
        st = dev->ops->upload(dev, (dlab_at){s->k, (size_t)(i * k_layer)}, zeros, (size_t)s->k_block, err);
        if (st != DLAB_OK) break;
        st = dev->ops->upload(dev, (dlab_at){s->v, (size_t)(i * v_layer)}, zeros, (size_t)s->v_block, err);
    }
    free(zeros);
    return st == DLAB_OK ? dev->ops->sync(dev, err) : st;
}

static dlab_status create(const dlab_kv_config *cfg, dlab_kv_store **out, dlab_error *err)
{
    *out = NULL;
    DLAB_TRY(check_config(cfg, err));
    dlab_kv_paged *s = calloc(1, sizeof *s);
    if (!s) return DLAB_FAIL(err, DLAB_EOOM, "paged store: no memory");
    s->base.ops = &dlab_kv_store_paged;
    s->cfg = *cfg;
    s->k_block = plane_block_bytes(cfg, &cfg->k);
    s->v_block = plane_block_bytes(cfg, &cfg->v);
    s->max_blocks = max_segs(cfg);
    dlab_status st = create_books(s, err);
    if (st == DLAB_OK) st = create_buffers(s, err);
    if (st == DLAB_OK)
        *out = &s->base;
    else
        destroy(&s->base);
    return st;
}

/* ---- blocks ---- */

/* Takes a block out of the prefix index; nobody finds it any more. */
static void forget(dlab_kv_paged *s, int64_t block)
{
    dlab_prefix_index_remove(&s->index, block);
    dlab_block_pool_forget(&s->pool, block);
}

/* There must be a free or a cached one. */
static int64_t take(dlab_kv_paged *s)
{
    if (s->pool.n_free == 0) {
        forget(s, s->pool.oldest);
        s->n_evictions++;
    }
    return dlab_block_pool_take(&s->pool);
}

/* Gives back the blocks from n on, the last one first: of what stays cached it is the first to be evicted, as nothing can be
 * found through it. */
static void give_back(dlab_kv_paged *s, int seq, int64_t n)
{
    dlab_paged_seq *q = &s->seqs[seq];
    while (q->n_blocks > n) dlab_block_pool_release(&s->pool, table_of(s, seq)[--q->n_blocks]);
}

/* Tokens below this one are in their regions for good; a step may write the others there, those that wait in a tail too. */
static int64_t first_open_token(const dlab_kv_paged *s, int seq)
{
    return dlab_kv_tails_sealed(&s->tails, seq, s->seqs[seq].live);
}

static dlab_status copy_block(dlab_kv_paged *s, int64_t to, int64_t from, dlab_error *err)
{
    dlab_device *dev = s->cfg.dev;
    const struct {
        dlab_buf buf;
        int64_t block;
    } planes[] = {{s->k, s->k_block}, {s->v, s->v_block}};
    for (int64_t layer = 0; layer < s->cfg.n_layers; layer++) {
        for (int p = 0; p < 2; p++) {
            int64_t size = planes[p].block, base = layer * (1 + s->pool.n) * size;
            dlab_at dst = {planes[p].buf, (size_t)(base + to * size)},
                    src = {planes[p].buf, (size_t)(base + from * size)};
            DLAB_TRY(dev->ops->copy(dev, dst, src, (size_t)size, err));
        }
    }
    return DLAB_OK;
}

/* Makes a block of a table the sequence's alone, to be written. */
static dlab_status own(dlab_kv_paged *s, int64_t *place, dlab_error *err)
{
    const dlab_block *b = &s->pool.blocks[*place];
    if (b->refs > 1) {
        int64_t copy = take(s);
        dlab_status st = copy_block(s, copy, *place, err);
        if (st != DLAB_OK) {
            dlab_block_pool_release(&s->pool, copy);
            return st;
        }
        dlab_block_pool_release(&s->pool, *place);
        *place = copy;
        s->n_copies++;
    } else if (b->kept) {
        forget(s, *place); /* it will not hold what the index says */
    }
    return DLAB_OK;
}

static dlab_status full(const dlab_kv_paged *s, int seq, int64_t len, int64_t more, int64_t copies, dlab_error *err)
{
    const dlab_paged_seq *q = &s->seqs[seq];
    return DLAB_FAIL(
        err, DLAB_EFULL,
        "paged store: %lld tokens take %lld blocks of %lld; the sequence has %lld, and needs %lld more with "
        "%lld copies of shared ones, but of %lld blocks %lld are free and %lld cached: fewer sequences at "
        "once, or a larger kv.pool",
        (long long)len, (long long)(q->n_blocks + more), (long long)s->cfg.block_tokens, (long long)q->n_blocks,
        (long long)(more + copies), (long long)copies, (long long)s->pool.n, (long long)s->pool.n_free,
        (long long)s->pool.n_cached);
}

static dlab_status extend(dlab_kv_store *base, int seq, int64_t len, int64_t span, dlab_error *err)
{
    (void)span; /* beyond its blocks a sequence shows block 0 */
    dlab_kv_paged *s = self(base);
    dlab_paged_seq *q = &s->seqs[seq];
    if (len <= q->live) return DLAB_OK;
    if (len > s->cfg.max_tokens) {
        return DLAB_FAIL(err, DLAB_EINTERNAL, "paged store: a sequence of %lld tokens, made for %lld", (long long)len,
                         (long long)s->cfg.max_tokens);
    }
    int64_t *table = table_of(s, seq);
    int64_t want = dlab_ceil_div(len, s->cfg.block_tokens), have = dlab_min_i64(q->n_blocks, want);
    int64_t first = first_open_token(s, seq) / s->cfg.block_tokens, copies = 0;
    for (int64_t i = first; i < have; i++) copies += s->pool.blocks[table[i]].refs > 1;
    if (want - have + copies > s->pool.n_free + s->pool.n_cached) return full(s, seq, len, want - have, copies, err);
    for (int64_t i = first; i < have; i++) DLAB_TRY(own(s, &table[i], err));
    while (q->n_blocks < want) table[q->n_blocks++] = take(s);
    return DLAB_OK;
}

/* ---- sequences ---- */

/* Takes the longest chain of blocks that the index has for ids. */
static void take_prefix(dlab_kv_paged *s, int seq, const int32_t *ids, int64_t n)
{
    dlab_paged_seq *q = &s->seqs[seq];
    int64_t *table = table_of(s, seq);
    dlab_prefix_link *links = links_of(s, seq), at = {0};
    for (int64_t i = 0; i < n / s->cfg.block_tokens; i++) {
        int64_t block = dlab_prefix_index_find(&s->index, at, ids + i * s->cfg.block_tokens, &at);
        if (!block) break;
        dlab_block_pool_hold(&s->pool, block);
        table[i] = block;
        links[i] = at;
        q->n_blocks = q->n_linked = i + 1;
    }
    q->live = q->n_blocks * s->cfg.block_tokens;
}

static dlab_status open_seq(dlab_kv_store *base, int seq, const int32_t *ids, int64_t n, int64_t *n_cached,
                            dlab_error *err)
{
    (void)err;
    dlab_kv_paged *s = self(base);
    assert(!s->seqs[seq].open);
    s->seqs[seq] = (dlab_paged_seq){.marked = -1, .open = true};
    if (s->cfg.prefix_cache) take_prefix(s, seq, ids, dlab_min_i64(n, s->cfg.max_tokens));
    *n_cached = s->seqs[seq].live;
    dlab_kv_tails_open(&s->cfg, &s->tails, seq, *n_cached);
    return DLAB_OK;
}

static dlab_status fork_seq(dlab_kv_store *base, int parent, int child, int64_t len, dlab_error *err)
{
    dlab_kv_paged *s = self(base);
    const dlab_paged_seq *p = &s->seqs[parent];
    assert(p->open && !s->seqs[child].open && len <= p->live);
    DLAB_TRY(dlab_kv_tails_can_cut(&s->cfg, &s->tails, parent, len, err));
    DLAB_TRY(dlab_kv_tails_fork(&s->cfg, &s->tails, s->cfg.n_layers, parent, child, err));
    dlab_kv_tails_cut(&s->cfg, &s->tails, child, len);
    dlab_paged_seq *q = &s->seqs[child];
    *q = (dlab_paged_seq){.live = len, .marked = -1, .open = true};
    q->n_blocks = dlab_ceil_div(len, s->cfg.block_tokens);
    for (int64_t i = 0; i < q->n_blocks; i++) {
        table_of(s, child)[i] = table_of(s, parent)[i];
        dlab_block_pool_hold(&s->pool, table_of(s, child)[i]);
    }
    if (s->cfg.prefix_cache) {
        q->n_linked = dlab_min_i64(p->n_linked, first_open_token(s, child) / s->cfg.block_tokens);
        if (q->n_linked > 0) {
            memcpy(links_of(s, child), links_of(s, parent), (size_t)q->n_linked * sizeof *s->links);
        }
    }
    return DLAB_OK;
}

static void close_seq(dlab_kv_store *base, int seq)
{
    dlab_kv_paged *s = self(base);
    give_back(s, seq, 0);
    s->seqs[seq] = (dlab_paged_seq){0};
}

static void reset(dlab_kv_store *base)
{
    dlab_kv_paged *s = self(base);
    while (s->pool.n_cached > 0) forget(s, s->pool.oldest);
    dlab_block_pool_order(&s->pool);
}

/* Puts blocks that are full and final into the index; one that is there already, of another sequence, stays the one that is
 * found, and the chain goes on behind it. */
static void publish(dlab_kv_paged *s, int seq, const int32_t *ids)
{
    dlab_paged_seq *q = &s->seqs[seq];
    dlab_prefix_link *links = links_of(s, seq);
    int64_t n = first_open_token(s, seq) / s->cfg.block_tokens;
    for (; q->n_linked < n; q->n_linked++) {
        int64_t i = q->n_linked, block = table_of(s, seq)[i];
        const int32_t *own_ids = ids + i * s->cfg.block_tokens;
        dlab_prefix_link at = i > 0 ? links[i - 1] : (dlab_prefix_link){0};
        if (dlab_prefix_index_find(&s->index, at, own_ids, &links[i])) continue;
        links[i] = dlab_prefix_index_add(&s->index, block, at, own_ids);
        dlab_block_pool_keep(&s->pool, block);
    }
}

static void commit(dlab_kv_store *base, int seq, const int32_t *ids, int64_t len)
{
    dlab_kv_paged *s = self(base);
    dlab_paged_seq *q = &s->seqs[seq];
    if (len <= q->live) return; /* recomputed for its logits only */
    assert(len <= q->n_blocks * s->cfg.block_tokens);
    q->live = len;
    dlab_kv_tails_commit(&s->cfg, &s->tails, seq, len);
    if (s->cfg.prefix_cache) publish(s, seq, ids);
}

static dlab_status mark(dlab_kv_store *base, int seq, dlab_error *err)
{
    dlab_kv_paged *s = self(base);
    DLAB_TRY(dlab_kv_tails_mark(&s->cfg, &s->tails, s->cfg.n_layers, seq, err));
    s->seqs[seq].marked = s->seqs[seq].live;
    return DLAB_OK;
}

static dlab_status rewind_to_mark(dlab_kv_store *base, int seq, dlab_error *err)
{
    dlab_kv_paged *s = self(base);
    dlab_paged_seq *q = &s->seqs[seq];
    if (q->marked < 0) return DLAB_FAIL(err, DLAB_EINTERNAL, "paged store: sequence %d has no mark to rewind to", seq);
    DLAB_TRY(dlab_kv_tails_rewind(&s->cfg, &s->tails, s->cfg.n_layers, seq, err));
    give_back(s, seq, dlab_ceil_div(q->marked, s->cfg.block_tokens));
    q->live = q->marked;
    q->retired = false;
    /* Blocks from here on will be written again, and looked up again then. */
    q->n_linked = dlab_min_i64(q->n_linked, first_open_token(s, seq) / s->cfg.block_tokens);
    return DLAB_OK;
}

static void retire(dlab_kv_store *base, int seq) { self(base)->seqs[seq].retired = true; }

/* ---- what a step sees ---- */

static void place(const dlab_kv_store *base, int seq, int64_t pos, dlab_desc_row *row)
{
    const dlab_kv_paged *s = inside(base);
    row->k_slot = row->v_slot = -1;
    if (pos < s->seqs[seq].live) return;
    int64_t i = pos / s->cfg.block_tokens;
    assert(i < s->seqs[seq].n_blocks);
    int64_t block = table_of(s, seq)[i];
    row->k_slot = block * s->k_block;
    row->v_slot = block * s->v_block;
    row->index = (int32_t)(pos - i * s->cfg.block_tokens);
}

static int32_t segments(const dlab_kv_store *base, int seq, int64_t len, dlab_desc_seg *out)
{
    const dlab_kv_paged *s = inside(base);
    const int64_t *table = table_of(s, seq), k_block = s->k_block, v_block = s->v_block;
    int32_t tokens = (int32_t)s->cfg.block_tokens, n = (int32_t)dlab_ceil_div(len, tokens);
    int32_t held = (int32_t)dlab_min_i64(n, s->seqs[seq].n_blocks);
    for (int32_t i = 0; i < held; i++) {
        out[i] = (dlab_desc_seg){table[i] * k_block, table[i] * v_block, i * tokens, tokens};
    }
    for (int32_t i = held; i < n; i++) out[i] = (dlab_desc_seg){.tok_begin = i * tokens, .n_tok = tokens};
    if (n > 0) out[n - 1].n_tok = (int32_t)len - out[n - 1].tok_begin;
    return n;
}

static void tails(const dlab_kv_store *base, int seq, int64_t len, dlab_desc_seq *out)
{
    dlab_kv_tails_describe(&inside(base)->cfg, &inside(base)->tails, seq, len, out);
}

static dlab_kv_plane plane(const dlab_kv_paged *s, const dlab_kv_layout *l, dlab_buf buf, int64_t block, int layer)
{
    int64_t bytes_a_layer = (1 + s->pool.n) * block;
    return dlab_kv_layout_plane(l, s->cfg.head_dim, s->cfg.block_tokens,
                                (dlab_at){buf, (size_t)(layer * bytes_a_layer)}, bytes_a_layer);
}

static void view(const dlab_kv_store *base, int layer, dlab_kv_view *out)
{
    const dlab_kv_paged *s = inside(base);
    *out = (dlab_kv_view){
        .k = plane(s, &s->cfg.k, s->k, s->k_block, layer),
        .v = plane(s, &s->cfg.v, s->v, s->v_block, layer),
        .n_kv_heads = s->cfg.n_kv_heads,
        .head_dim = s->cfg.head_dim,
    };
    dlab_kv_tails_view(&s->cfg, &s->tails, layer, out);
}

/* ---- figures ---- */

/* Tokens of live sequences that are in their regions (sealed NULL: all are); of a block that several share, what the longest
 * of them has there. */
static int64_t tokens_in_blocks(const dlab_kv_paged *s, const int64_t *sealed)
{
    int64_t used = 0, tokens = s->cfg.block_tokens;
    for (int seq = 0; seq < s->cfg.max_seqs; seq++) {
        const dlab_paged_seq *q = &s->seqs[seq];
        const int64_t *table = table_of(s, seq);
        int64_t left = q->retired ? 0 : q->live;
        if (sealed) left = dlab_min_i64(left, sealed[seq]);
        for (int64_t i = 0; left > 0; i++, left -= tokens) {
            int64_t here = dlab_min_i64(left, tokens), *filled = &s->filled[table[i]];
            if (here > *filled) {
                used += here - *filled;
                *filled = here;
            }
        }
    }
    for (int seq = 0; seq < s->cfg.max_seqs; seq++) {
        for (int64_t i = 0; i < s->seqs[seq].n_blocks; i++) s->filled[table_of(s, seq)[i]] = 0;
    }
    return used;
}

static int64_t tokens_in_tails(const dlab_kv_paged *s, const int64_t *sealed)
{
    int64_t used = 0;
    for (int seq = 0; seq < s->cfg.max_seqs && sealed; seq++) {
        const dlab_paged_seq *q = &s->seqs[seq];
        if (!q->retired && q->live > sealed[seq]) used += q->live - sealed[seq];
    }
    return used;
}

static int64_t used_bytes(const dlab_kv_paged *s)
{
    const dlab_kv_tails *t = &s->tails;
    int64_t in_tail = s->cfg.n_kv_heads * (int64_t)dlab_dtype_bytes(DLAB_F16, s->cfg.head_dim);
    int64_t k = tokens_in_blocks(s, t->k_sealed), v = t->v_sealed == t->k_sealed ? k : tokens_in_blocks(s, t->v_sealed);
    int64_t a_layer = k * s->k_block / s->cfg.block_tokens + v * s->v_block / s->cfg.block_tokens +
                      in_tail * (tokens_in_tails(s, t->k_sealed) + tokens_in_tails(s, t->v_sealed));
    return s->cfg.n_layers * a_layer;
}

static void stats(const dlab_kv_store *base, dlab_kv_stats *out)
{
    const dlab_kv_paged *s = inside(base);
    const dlab_block_pool *p = &s->pool;
    int64_t block = block_bytes(&s->cfg), tail = dlab_kv_tails_bytes(&s->cfg, s->cfg.n_layers) / s->cfg.max_seqs;
    int64_t live_blocks = p->n - p->n_free - p->n_cached, open_seqs = 0;
    for (int64_t i = 0; i < s->cfg.max_seqs; i++) open_seqs += s->seqs[i].open;
    *out = (dlab_kv_stats){
        .pool_bytes = bytes(&s->cfg),
        .reserved_bytes = live_blocks * block + open_seqs * tail,
        .used_bytes = used_bytes(s),
        .cached_bytes = p->n_cached * block,
        .free_bytes = (1 + p->n_free) * block + (s->cfg.max_seqs - open_seqs) * tail,
        .unusable_bytes = block,
        .shared_bytes = (p->n_refs - live_blocks) * block,
        .n_evictions = s->n_evictions,
        .n_copies = s->n_copies,
    };
}

static int64_t room(const dlab_kv_store *base)
{
    const dlab_kv_paged *s = inside(base);
    return (s->pool.n_free + s->pool.n_cached) * s->cfg.block_tokens;
}

static int64_t capacity(const dlab_kv_store *base)
{
    const dlab_kv_paged *s = inside(base);
    return dlab_min_i64(s->pool.n * s->cfg.block_tokens, s->cfg.max_tokens);
}

const dlab_kv_store_ops dlab_kv_store_paged = {
    .name = "paged",
    .summary = "blocks from a pool on demand, shared between sequences and copied when written",
    .retains = true,
    .shares = true,
    .max_segs = max_segs,
    .bytes = bytes,
    .create = create,
    .destroy = destroy,
    .open = open_seq,
    .fork = fork_seq,
    .close = close_seq,
    .reset = reset,
    .extend = extend,
    .commit = commit,
    .mark = mark,
    .rewind = rewind_to_mark,
    .retire = retire,
    .measure = dlab_kv_paged_measure,
    .swap = dlab_kv_paged_swap,
    .place = place,
    .segments = segments,
    .tails = tails,
    .view = view,
    .stats = stats,
    .room = room,
    .capacity = capacity,
};
