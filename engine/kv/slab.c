#include "engine/kv/slab.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "engine/kv/swap.h"

static dlab_kv_slab *self(dlab_kv_store *s) { return (dlab_kv_slab *)s; }
static const dlab_kv_slab *view_of(const dlab_kv_store *s) { return (const dlab_kv_slab *)s; }

/* ---- sizes ---- */

static int64_t region_bytes(const dlab_kv_config *cfg, const dlab_kv_layout *l, int64_t cap)
{
    return dlab_kv_region_bytes(l, cfg->head_dim, dlab_kv_round_cap(l, cap));
}

static int64_t layer_bytes(const dlab_kv_config *cfg, const dlab_kv_layout *l, int64_t cap)
{
    return cfg->max_seqs * cfg->n_kv_heads * region_bytes(cfg, l, cap);
}

int64_t dlab_kv_slab_slot_bytes(const dlab_kv_config *cfg, int32_t layers, int64_t cap)
{
    dlab_kv_config one = *cfg;
    one.max_seqs = 1;
    return layers * (layer_bytes(&one, &cfg->k, cap) + layer_bytes(&one, &cfg->v, cap)) +
           dlab_kv_tails_bytes(&one, layers);
}

/* The most tokens that every one of max_seqs slots may have in the pool, 0 … max_tokens. */
static int64_t cap_in_pool(const dlab_kv_config *cfg, int32_t layers)
{
    int64_t fits = 0, beyond = cfg->max_tokens + 1;
    while (beyond - fits > 1) {
        int64_t cap = fits + (beyond - fits) / 2;
        if (cfg->max_seqs * dlab_kv_slab_slot_bytes(cfg, layers, cap) <= cfg->pool_bytes)
            fits = cap;
        else
            beyond = cap;
    }
    return fits;
}

dlab_kv_slab_shape dlab_kv_slab_shape_of(const dlab_kv_config *cfg, int32_t layers, bool grow)
{
    dlab_kv_slab_shape s = {.slots = cfg->max_seqs, .first_cap = cfg->max_tokens, .max_cap = cfg->max_tokens};
    if (grow) {
        if (cfg->pool_bytes > 0) s.max_cap = cap_in_pool(cfg, layers);
        s.first_cap = cfg->first_tokens < s.max_cap ? cfg->first_tokens : s.max_cap;
    } else if (cfg->pool_bytes > 0) {
        int64_t slot = dlab_kv_slab_slot_bytes(cfg, layers, cfg->max_tokens), fit = cfg->pool_bytes / slot;
        if (fit < s.slots) {
            s.slots = fit;
            s.slack = cfg->pool_bytes - fit * slot;
        }
    }
    return s;
}

int64_t dlab_kv_slab_bytes(const dlab_kv_config *cfg, int32_t layers, bool grow)
{
    dlab_kv_slab_shape s = dlab_kv_slab_shape_of(cfg, layers, grow);
    return s.slots * dlab_kv_slab_slot_bytes(cfg, layers, s.first_cap) + s.slack;
}

/* ---- life ---- */

static dlab_status alloc_pair(const dlab_kv_slab *s, int64_t cap, dlab_buf *k, dlab_buf *v, dlab_error *err)
{
    const dlab_kv_config *cfg = &s->cfg;
    dlab_device *dev = cfg->dev;
    size_t k_bytes = (size_t)(s->layers * layer_bytes(cfg, &cfg->k, cap)),
           v_bytes = (size_t)(s->layers * layer_bytes(cfg, &cfg->v, cap) + s->shape.slack);
    DLAB_TRY(dev->ops->alloc(dev, DLAB_POOL_KV, k_bytes, k, err));
    dlab_status st = dev->ops->alloc(dev, DLAB_POOL_KV, v_bytes, v, err);
    if (st != DLAB_OK) {
        dev->ops->free(dev, DLAB_POOL_KV, *k);
        *k = (dlab_buf){0};
    }
    return st;
}

static dlab_status check_pool(const dlab_kv_store_ops *ops, const dlab_kv_config *cfg, int32_t layers,
                              const dlab_kv_slab_shape *shape, bool grow, dlab_error *err)
{
    if (shape->slots > 0 && shape->max_cap > 0) return DLAB_OK;
    int64_t tokens = grow ? 1 : cfg->max_tokens, seqs = grow ? cfg->max_seqs : 1;
    char pool[32], need[32];
    dlab_text_bytes((double)cfg->pool_bytes, pool, sizeof pool);
    dlab_text_bytes((double)(seqs * dlab_kv_slab_slot_bytes(cfg, layers, tokens)), need, sizeof need);
    return DLAB_FAIL(
        err, DLAB_EIMPOSSIBLE,
        "kv.pool of %s: the %s store needs %s for %lld sequence%s of %lld token%s; raise kv.pool, or lower "
        "%s",
        pool, ops->name, need, (long long)seqs, seqs == 1 ? "" : "s", (long long)tokens, tokens == 1 ? "" : "s",
        grow ? "batch.size" : "kv.max_tokens");
}

dlab_status dlab_kv_slab_create(const dlab_kv_store_ops *ops, const dlab_kv_config *cfg, int32_t layers, bool grow,
                                dlab_kv_store **out, dlab_error *err)
{
    *out = NULL;
    dlab_kv_slab_shape shape = dlab_kv_slab_shape_of(cfg, layers, grow);
    DLAB_TRY(check_pool(ops, cfg, layers, &shape, grow, err));
    dlab_status st = DLAB_OK;
    dlab_kv_slab *s = calloc(1, sizeof *s);
    if (!s) return DLAB_FAIL(err, DLAB_EOOM, "kv store: no memory");
    *s = (dlab_kv_slab){.base.ops = ops,
                        .cfg = *cfg,
                        .shape = shape,
                        .layers = layers,
                        .cap = shape.first_cap,
                        .n_seqs = cfg->max_seqs};
    s->cfg.max_seqs = shape.slots;
    s->seqs = malloc((size_t)s->n_seqs * sizeof *s->seqs);
    s->owner = malloc((size_t)shape.slots * sizeof *s->owner);
    if (!s->seqs || !s->owner) {
        st = DLAB_FAIL(err, DLAB_EOOM, "kv store: no memory for %lld sequences", (long long)s->n_seqs);
        goto done;
    }
    for (int64_t i = 0; i < s->n_seqs; i++) s->seqs[i] = (dlab_kv_slab_seq){.mark = -1, .slot = -1};
    for (int64_t i = 0; i < shape.slots; i++) s->owner[i] = -1;
    DLAB_TRY_DONE(st, alloc_pair(s, s->cap, &s->k, &s->v, err));
    DLAB_TRY_DONE(st, dlab_kv_tails_create(&s->cfg, layers, &s->tails, err));
done:
    if (st == DLAB_OK)
        *out = &s->base;
    else
        dlab_kv_slab_destroy(&s->base);
    return st;
}

void dlab_kv_slab_destroy(dlab_kv_store *base)
{
    if (!base) return;
    dlab_kv_slab *s = self(base);
    dlab_device *dev = s->cfg.dev;
    dlab_kv_tails_destroy(&s->cfg, &s->tails);
    if (s->k.ptr) dev->ops->free(dev, DLAB_POOL_KV, s->k);
    if (s->v.ptr) dev->ops->free(dev, DLAB_POOL_KV, s->v);
    free(s->seqs);
    free(s->owner);
    free(s);
}

/* ---- moving bytes ---- */

/* A region: the buffer it is in, where it begins, and for how many tokens it was made. */
typedef struct {
    dlab_buf buf;
    int64_t off, cap;
} region;

static region region_at(const dlab_kv_slab *s, const dlab_kv_layout *l, dlab_buf buf, int64_t cap, int64_t index)
{
    return (region){buf, index * region_bytes(&s->cfg, l, cap), dlab_kv_round_cap(l, cap)};
}

/* Bytes of the first `tokens` of a region: elements, and scales, which lie behind the elements of all the tokens that a region
 * has room for. Where capacities differ each part has a way of its own. */
typedef struct {
    int64_t elements, scales;
} parts;

static parts parts_of(const dlab_kv_config *cfg, const dlab_kv_layout *l, int64_t tokens)
{
    const int64_t dim = cfg->head_dim, n = dlab_kv_round_cap(l, tokens);
    return (parts){n * dlab_kv_token_stride(l, dim), dlab_kv_region_bytes(l, dim, n) - dlab_kv_meta_off(l, dim, n)};
}

static dlab_status copy_region(const dlab_kv_slab *s, const dlab_kv_layout *l, region to, region from, int64_t tokens,
                               dlab_error *err)
{
    dlab_device *dev = s->cfg.dev;
    const parts p = parts_of(&s->cfg, l, tokens);
    dlab_at dst = {to.buf, (size_t)to.off}, src = {from.buf, (size_t)from.off};
    DLAB_TRY(dev->ops->copy(dev, dst, src, (size_t)p.elements, err));
    if (p.scales == 0) return DLAB_OK;
    dst.off += (size_t)dlab_kv_meta_off(l, s->cfg.head_dim, to.cap);
    src.off += (size_t)dlab_kv_meta_off(l, s->cfg.head_dim, from.cap);
    return dev->ops->copy(dev, dst, src, (size_t)p.scales, err);
}

/* Tokens that a sequence must not lose: those it has, and those it may be rewound to. */
static int64_t held_tokens(const dlab_kv_slab_seq *q) { return q->live > q->mark ? q->live : q->mark; }

static dlab_status move_plane(const dlab_kv_slab *s, const dlab_kv_layout *l, dlab_buf to, dlab_buf from,
                              int64_t new_cap, dlab_error *err)
{
    int64_t slots = s->shape.slots, heads = s->cfg.n_kv_heads;
    for (int64_t i = 0; i < s->layers * slots * heads; i++) {
        int32_t seq = s->owner[i / heads % slots];
        int64_t held = seq >= 0 ? held_tokens(&s->seqs[seq]) : 0;
        if (held <= 0) continue;
        DLAB_TRY(copy_region(s, l, region_at(s, l, to, new_cap, i), region_at(s, l, from, s->cap, i), held, err));
    }
    return DLAB_OK;
}

static dlab_status resize(dlab_kv_slab *s, int64_t new_cap, dlab_error *err)
{
    dlab_device *dev = s->cfg.dev;
    dlab_buf k = {0}, v = {0};
    DLAB_TRY(alloc_pair(s, new_cap, &k, &v, err));
    dlab_status st = move_plane(s, &s->cfg.k, k, s->k, new_cap, err);
    if (st == DLAB_OK) st = move_plane(s, &s->cfg.v, v, s->v, new_cap, err);
    if (st == DLAB_OK) st = dev->ops->sync(dev, err);
    dev->ops->free(dev, DLAB_POOL_KV, st == DLAB_OK ? s->k : k);
    dev->ops->free(dev, DLAB_POOL_KV, st == DLAB_OK ? s->v : v);
    if (st != DLAB_OK) return st;
    s->k = k;
    s->v = v;
    s->cap = new_cap;
    return DLAB_OK;
}

static int64_t doubled_to(const dlab_kv_slab *s, int64_t cap, int64_t tokens)
{
    while (cap < tokens) cap *= 2;
    return cap < s->shape.max_cap ? cap : s->shape.max_cap;
}

dlab_status dlab_kv_slab_extend(dlab_kv_store *base, int seq, int64_t len, int64_t span, dlab_error *err)
{
    dlab_kv_slab *s = self(base);
    int64_t tokens = len > span ? len : span;
    if (tokens <= s->cap) return DLAB_OK;
    if (tokens > s->shape.max_cap) {
        bool pool = s->shape.max_cap < s->cfg.max_tokens;
        return DLAB_FAIL(err, DLAB_EFULL,
                         "%s store: %lld tokens asked for sequence %d, room for %lld in each of %lld; %s",
                         base->ops->name, (long long)tokens, seq, (long long)s->shape.max_cap,
                         (long long)s->shape.slots, pool ? "raise kv.pool or lower batch.size" : "raise kv.max_tokens");
    }
    int64_t begin = dlab_clock_now_ns(dlab_clock_real()), from = s->cap;
    dlab_status st = resize(s, doubled_to(s, s->cap, tokens), err);
    if (st != DLAB_OK) {
        return dlab_error_prefix(err, st, "%s store: growing from %lld tokens a sequence for one of %lld",
                                 base->ops->name, (long long)from, (long long)tokens);
    }
    s->n_growths++;
    s->growth_ns += dlab_clock_now_ns(dlab_clock_real()) - begin;
    return DLAB_OK;
}

void dlab_kv_slab_reset(dlab_kv_store *base)
{
    dlab_kv_slab *s = self(base);
    int64_t held = 0;
    for (int64_t i = 0; i < s->n_seqs; i++) {
        int64_t tokens = held_tokens(&s->seqs[i]);
        if (s->seqs[i].slot >= 0 && tokens > held) held = tokens;
    }
    int64_t cap = doubled_to(s, s->shape.first_cap, held);
    if (cap < s->cap) resize(s, cap, NULL); /* without memory for the copy it stays as it is */
}

/* ---- sequences ---- */

dlab_status dlab_kv_slab_open(dlab_kv_store *base, int seq, const int32_t *ids, int64_t n, int64_t *n_cached,
                              dlab_error *err)
{
    (void)ids;
    (void)n;
    dlab_kv_slab *s = self(base);
    *n_cached = 0;
    for (int32_t i = 0; i < s->shape.slots; i++) {
        if (s->owner[i] >= 0) continue;
        s->owner[i] = seq;
        s->seqs[seq] = (dlab_kv_slab_seq){.mark = -1, .slot = i};
        dlab_kv_tails_open(&s->cfg, &s->tails, i, 0);
        return DLAB_OK;
    }
    return DLAB_FAIL(err, DLAB_EFULL,
                     "%s store: no place for sequence %d: all %lld places of %lld tokens are taken; raise kv.pool, or "
                     "lower batch.size or kv.max_tokens",
                     base->ops->name, seq, (long long)s->shape.slots, (long long)s->cap);
}

void dlab_kv_slab_close(dlab_kv_store *base, int seq)
{
    dlab_kv_slab *s = self(base);
    s->owner[s->seqs[seq].slot] = -1;
    s->seqs[seq] = (dlab_kv_slab_seq){.mark = -1, .slot = -1};
}

static dlab_status copy_tokens(const dlab_kv_slab *s, const dlab_kv_layout *l, dlab_buf buf, int32_t to, int32_t from,
                               int64_t tokens, dlab_error *err)
{
    int64_t heads = s->cfg.n_kv_heads;
    for (int64_t layer = 0; layer < s->layers; layer++) {
        for (int64_t g = 0; g < heads; g++) {
            int64_t first = layer * s->shape.slots;
            DLAB_TRY(copy_region(s, l, region_at(s, l, buf, s->cap, (first + to) * heads + g),
                                 region_at(s, l, buf, s->cap, (first + from) * heads + g), tokens, err));
        }
    }
    return DLAB_OK;
}

dlab_status dlab_kv_slab_fork(dlab_kv_store *base, int parent, int child, int64_t len, dlab_error *err)
{
    dlab_kv_slab *s = self(base);
    int32_t from = s->seqs[parent].slot;
    DLAB_TRY(dlab_kv_tails_can_cut(&s->cfg, &s->tails, from, len, err));
    int64_t n_cached = 0;
    DLAB_TRY(dlab_kv_slab_open(base, child, NULL, 0, &n_cached, err));
    if (!base->ops->retains) return DLAB_OK;
    int32_t to = s->seqs[child].slot;
    dlab_status st = DLAB_OK;
    DLAB_TRY_DONE(st, copy_tokens(s, &s->cfg.k, s->k, to, from, len, err));
    DLAB_TRY_DONE(st, copy_tokens(s, &s->cfg.v, s->v, to, from, len, err));
    DLAB_TRY_DONE(st, dlab_kv_tails_fork(&s->cfg, &s->tails, s->layers, from, to, err));
    dlab_kv_tails_cut(&s->cfg, &s->tails, to, len);
    s->seqs[child].live = len;
done:
    if (st != DLAB_OK) dlab_kv_slab_close(base, child);
    return st;
}

void dlab_kv_slab_commit(dlab_kv_store *base, int seq, const int32_t *ids, int64_t len)
{
    (void)ids;
    dlab_kv_slab *s = self(base);
    if (!base->ops->retains) return;
    s->seqs[seq].live = len;
    dlab_kv_tails_commit(&s->cfg, &s->tails, s->seqs[seq].slot, len);
}

dlab_status dlab_kv_slab_mark(dlab_kv_store *base, int seq, dlab_error *err)
{
    dlab_kv_slab *s = self(base);
    dlab_kv_slab_seq *q = &s->seqs[seq];
    if (base->ops->retains) DLAB_TRY(dlab_kv_tails_mark(&s->cfg, &s->tails, s->layers, q->slot, err));
    q->mark = q->live;
    return DLAB_OK;
}

dlab_status dlab_kv_slab_rewind(dlab_kv_store *base, int seq, dlab_error *err)
{
    dlab_kv_slab *s = self(base);
    dlab_kv_slab_seq *q = &s->seqs[seq];
    if (q->mark < 0) return DLAB_FAIL(err, DLAB_EINTERNAL, "%s store: sequence %d has no mark", base->ops->name, seq);
    if (base->ops->retains) DLAB_TRY(dlab_kv_tails_rewind(&s->cfg, &s->tails, s->layers, q->slot, err));
    q->live = q->mark;
    return DLAB_OK;
}

void dlab_kv_slab_retire(dlab_kv_store *s, int seq) { self(s)->seqs[seq].live = 0; }

/* ---- to a swap area and back ---- */

void dlab_kv_slab_measure(const dlab_kv_store *base, int seq, dlab_kv_image *out)
{
    const dlab_kv_slab *s = view_of(base);
    out->live = s->seqs[seq].live;
    out->from = 0;
    const parts k = parts_of(&s->cfg, &s->cfg.k, out->live), v = parts_of(&s->cfg, &s->cfg.v, out->live);
    out->bytes = (int64_t)s->layers * s->cfg.n_kv_heads * (k.elements + k.scales + v.elements + v.scales) +
                 dlab_kv_tails_ring_bytes(&s->cfg, s->layers);
}

static dlab_status swap_plane(const dlab_kv_slab *s, const dlab_kv_layout *l, dlab_buf buf, int32_t slot,
                              int64_t tokens, dlab_kv_cursor *c, dlab_error *err)
{
    const int64_t heads = s->cfg.n_kv_heads;
    const parts p = parts_of(&s->cfg, l, tokens);
    for (int64_t layer = 0; layer < s->layers; layer++) {
        for (int64_t g = 0; g < heads; g++) {
            const region r = region_at(s, l, buf, s->cap, (layer * s->shape.slots + slot) * heads + g);
            dlab_at at = {buf, (size_t)r.off};
            DLAB_TRY(dlab_kv_swap_move(c, at, p.elements, err));
            at.off += (size_t)dlab_kv_meta_off(l, s->cfg.head_dim, r.cap);
            DLAB_TRY(dlab_kv_swap_move(c, at, p.scales, err));
        }
    }
    return DLAB_OK;
}

dlab_status dlab_kv_slab_swap(dlab_kv_store *base, int seq, dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err)
{
    dlab_kv_slab *s = self(base);
    const int32_t slot = s->seqs[seq].slot;
    DLAB_TRY(swap_plane(s, &s->cfg.k, s->k, slot, image->live, c, err));
    DLAB_TRY(swap_plane(s, &s->cfg.v, s->v, slot, image->live, c, err));
    DLAB_TRY(dlab_kv_tails_swap(&s->cfg, &s->tails, s->layers, slot, image, c, err));
    s->seqs[seq].live = image->live;
    return DLAB_OK;
}

/* ---- what a step sees ---- */

static int64_t slot_offset(const dlab_kv_slab *s, const dlab_kv_layout *l, int32_t slot)
{
    return (int64_t)slot * s->cfg.n_kv_heads * region_bytes(&s->cfg, l, s->cap);
}

int64_t dlab_kv_slab_max_segs(const dlab_kv_config *cfg)
{
    (void)cfg;
    return 1;
}

void dlab_kv_slab_place(const dlab_kv_store *base, int seq, int64_t pos, dlab_desc_row *row)
{
    const dlab_kv_slab *s = view_of(base);
    const dlab_kv_slab_seq *q = &s->seqs[seq];
    bool held = pos < q->live;
    row->k_slot = held ? -1 : slot_offset(s, &s->cfg.k, q->slot);
    row->v_slot = held ? -1 : slot_offset(s, &s->cfg.v, q->slot);
    row->index = (int32_t)pos;
}

int32_t dlab_kv_slab_segments(const dlab_kv_store *base, int seq, int64_t len, dlab_desc_seg *out)
{
    const dlab_kv_slab *s = view_of(base);
    int32_t slot = s->seqs[seq].slot;
    *out = (dlab_desc_seg){
        .k_off = slot_offset(s, &s->cfg.k, slot), .v_off = slot_offset(s, &s->cfg.v, slot), .n_tok = (int32_t)len};
    return 1;
}

void dlab_kv_slab_describe_tails(const dlab_kv_store *base, int seq, int64_t len, dlab_desc_seq *out)
{
    const dlab_kv_slab *s = view_of(base);
    dlab_kv_tails_describe(&s->cfg, &s->tails, s->seqs[seq].slot, len, out);
}

static dlab_kv_plane plane_of(const dlab_kv_slab *s, const dlab_kv_layout *l, dlab_buf buf, int layer)
{
    int64_t bytes = layer_bytes(&s->cfg, l, s->cap);
    return dlab_kv_layout_plane(l, s->cfg.head_dim, dlab_kv_round_cap(l, s->cap),
                                (dlab_at){buf, (size_t)(layer * bytes)}, bytes);
}

void dlab_kv_slab_view(const dlab_kv_store *base, int layer, dlab_kv_view *out)
{
    const dlab_kv_slab *s = view_of(base);
    *out = (dlab_kv_view){
        .k = plane_of(s, &s->cfg.k, s->k, layer),
        .v = plane_of(s, &s->cfg.v, s->v, layer),
        .n_kv_heads = s->cfg.n_kv_heads,
        .head_dim = s->cfg.head_dim,
    };
    dlab_kv_tails_view(&s->cfg, &s->tails, layer, out);
}

/* Bytes of one head's `live` tokens: of the sealed ones in their region, of the others in the tail. */
static int64_t used_bytes(const dlab_kv_slab *s, const dlab_kv_layout *l, const int64_t *sealed, int32_t slot,
                          int64_t live)
{
    int64_t dim = s->cfg.head_dim, in_region = sealed && sealed[slot] < live ? sealed[slot] : live;
    return region_bytes(&s->cfg, l, in_region) + (live - in_region) * (int64_t)dlab_dtype_bytes(DLAB_F16, dim);
}

void dlab_kv_slab_stats(const dlab_kv_store *base, dlab_kv_stats *out)
{
    const dlab_kv_slab *s = view_of(base);
    int64_t slot_bytes = dlab_kv_slab_slot_bytes(&s->cfg, s->layers, s->cap);
    *out = (dlab_kv_stats){
        .pool_bytes = (int64_t)(s->k.bytes + s->v.bytes) + dlab_kv_tails_bytes(&s->cfg, s->layers),
        .unusable_bytes = s->shape.slack,
        .n_growths = s->n_growths,
        .growth_ns = s->growth_ns,
    };
    for (int32_t slot = 0; slot < s->shape.slots; slot++) {
        if (s->owner[slot] < 0) continue;
        int64_t live = s->seqs[s->owner[slot]].live;
        out->reserved_bytes += slot_bytes;
        out->used_bytes += s->layers * s->cfg.n_kv_heads *
                           (used_bytes(s, &s->cfg.k, s->tails.k_sealed, slot, live) +
                            used_bytes(s, &s->cfg.v, s->tails.v_sealed, slot, live));
    }
    out->free_bytes = out->pool_bytes - out->reserved_bytes;
}

int64_t dlab_kv_slab_room(const dlab_kv_store *base)
{
    const dlab_kv_slab *s = view_of(base);
    for (int64_t i = 0; i < s->shape.slots; i++) {
        if (s->owner[i] < 0) return s->shape.max_cap < s->cfg.max_tokens ? s->shape.max_cap : INT64_MAX;
    }
    return 0;
}

int64_t dlab_kv_slab_capacity(const dlab_kv_store *s) { return view_of(s)->shape.max_cap; }
