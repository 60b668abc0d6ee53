#include <stdlib.h>
#include <string.h>

#include "engine/kv/store.h"

static int64_t token_bytes(const dlab_kv_format *f, const dlab_kv_config *cfg)
{
    return dlab_kv_format_bytes(f, cfg->head_dim);
}

static int64_t layer_bytes(const dlab_kv_format *f, const dlab_kv_config *cfg, int64_t cap)
{
    return cfg->max_seqs * cfg->n_kv_heads * cap * token_bytes(f, cfg);
}

int64_t dlab_kv_slab_bytes(const dlab_kv_config *cfg, int32_t layers, int64_t cap)
{
    return layers * (layer_bytes(cfg->k, cfg, cap) + layer_bytes(cfg->v, cfg, cap));
}

static dlab_status alloc_pair(const dlab_kv_config *cfg, int32_t layers, int64_t cap, dlab_buf *k, dlab_buf *v,
                              dlab_error *err)
{
    dlab_device *dev = cfg->dev;
    DLAB_TRY(dev->ops->alloc(dev, DLAB_POOL_KV, (size_t)(layers * layer_bytes(cfg->k, cfg, cap)), k, err));
    dlab_status st = dev->ops->alloc(dev, DLAB_POOL_KV, (size_t)(layers * layer_bytes(cfg->v, cfg, cap)), v, err);
    if (st != DLAB_OK) {
        dev->ops->free(dev, DLAB_POOL_KV, *k);
        *k = (dlab_buf){0};
    }
    return st;
}

dlab_status dlab_kv_slab_create(const dlab_kv_store_ops *ops, const dlab_kv_config *cfg, int32_t layers, int64_t cap,
                                dlab_kv_store **out, dlab_error *err)
{
    *out = NULL;
    dlab_kv_slab *s = calloc(1, sizeof *s);
    int64_t *live = malloc((size_t)cfg->max_seqs * sizeof *live);
    if (!s || !live) {
        free(s);
        free(live);
        return DLAB_FAIL(err, DLAB_EOOM, "kv store: no memory for %lld sequences", (long long)cfg->max_seqs);
    }
    *s = (dlab_kv_slab){.base.ops = ops, .cfg = *cfg, .layers = layers, .cap = cap, .live = live};
    for (int64_t i = 0; i < cfg->max_seqs; i++) live[i] = -1;
    dlab_status st = alloc_pair(cfg, layers, cap, &s->k, &s->v, err);
    if (st != DLAB_OK) {
        dlab_kv_slab_destroy(&s->base);
        return st;
    }
    *out = &s->base;
    return DLAB_OK;
}

void dlab_kv_slab_destroy(dlab_kv_store *base)
{
    dlab_kv_slab *s = (dlab_kv_slab *)base;
    dlab_device *dev = s->cfg.dev;
    if (s->k.ptr) dev->ops->free(dev, DLAB_POOL_KV, s->k);
    if (s->v.ptr) dev->ops->free(dev, DLAB_POOL_KV, s->v);
    free(s->live);
    free(s);
}

dlab_status dlab_kv_slab_open(dlab_kv_store *s, int seq, dlab_error *err)
{
    (void)err;
    ((dlab_kv_slab *)s)->live[seq] = 0;
    return DLAB_OK;
}
void dlab_kv_slab_close(dlab_kv_store *s, int seq) { ((dlab_kv_slab *)s)->live[seq] = -1; }
void dlab_kv_slab_set_live(dlab_kv_store *s, int seq, int64_t len) { ((dlab_kv_slab *)s)->live[seq] = len; }

/* Copies every live row of one head from the old slab to the new one: one copy a (layer, sequence, head). */
static dlab_status copy_live(dlab_kv_slab *s, dlab_buf to, dlab_buf from, int64_t new_cap, int64_t bytes,
                             dlab_error *err)
{
    dlab_device *dev = s->cfg.dev;
    int64_t seqs = s->cfg.max_seqs, heads = s->cfg.n_kv_heads;
    for (int64_t i = 0; i < s->layers * seqs * heads; i++) {
        int64_t live = s->live[i / heads % seqs];
        if (live <= 0) continue;
        dlab_at dst = {to, (size_t)(i * new_cap * bytes)}, src = {from, (size_t)(i * s->cap * bytes)};
        DLAB_TRY(dev->ops->copy(dev, dst, src, (size_t)(live * bytes), err));
    }
    return DLAB_OK;
}

static dlab_status resize(dlab_kv_slab *s, int64_t new_cap, dlab_error *err)
{
    dlab_device *dev = s->cfg.dev;
    dlab_buf k = {0}, v = {0};
    DLAB_TRY(alloc_pair(&s->cfg, s->layers, new_cap, &k, &v, err));
    dlab_status st = copy_live(s, k, s->k, new_cap, token_bytes(s->cfg.k, &s->cfg), err);
    if (st == DLAB_OK) st = copy_live(s, v, s->v, new_cap, token_bytes(s->cfg.v, &s->cfg), err);
    if (st == DLAB_OK) st = dev->ops->sync(dev, err);
    dev->ops->free(dev, DLAB_POOL_KV, st == DLAB_OK ? s->k : k);
    dev->ops->free(dev, DLAB_POOL_KV, st == DLAB_OK ? s->v : v);
    if (st != DLAB_OK) return st;
    s->k = k;
    s->v = v;
    s->cap = new_cap;
    return DLAB_OK;
}

dlab_status dlab_kv_slab_extend(dlab_kv_store *base, int seq, int64_t len, dlab_error *err)
{
    (void)seq;
    dlab_kv_slab *s = (dlab_kv_slab *)base;
    if (len <= s->cap) return DLAB_OK;
    if (len > s->cfg.max_tokens) {
        return DLAB_FAIL(err, DLAB_EOOM, "%s store: a sequence of %lld tokens, room for %lld", base->ops->name,
                         (long long)len, (long long)s->cfg.max_tokens);
    }
    int64_t cap = s->cap;
    while (cap < len) cap *= 2;
    DLAB_TRY(resize(s, cap < s->cfg.max_tokens ? cap : s->cfg.max_tokens, err));
    s->n_growths++;
    return DLAB_OK;
}

void dlab_kv_slab_shrink(dlab_kv_store *base, int64_t first_cap)
{
    dlab_kv_slab *s = (dlab_kv_slab *)base;
    int64_t cap = first_cap;
    for (int64_t i = 0; i < s->cfg.max_seqs; i++) {
        while (cap < s->live[i]) cap *= 2;
    }
    if (cap > s->cfg.max_tokens) cap = s->cfg.max_tokens;
    if (cap < s->cap) resize(s, cap, NULL);
}

int dlab_kv_slab_max_segs(const dlab_kv_config *cfg)
{
    (void)cfg;
    return 1;
}

static int64_t slab_offset(const dlab_kv_slab *s, const dlab_kv_format *f, int seq, int64_t pos)
{
    return (seq * (int64_t)s->cfg.n_kv_heads * s->cap + pos) * token_bytes(f, &s->cfg);
}

void dlab_kv_slab_place(const dlab_kv_store *base, int seq, int64_t pos, int64_t *k_slot, int64_t *v_slot)
{
    const dlab_kv_slab *s = (const dlab_kv_slab *)base;
    *k_slot = slab_offset(s, s->cfg.k, seq, pos);
    *v_slot = slab_offset(s, s->cfg.v, seq, pos);
}

int dlab_kv_slab_segments(const dlab_kv_store *s, int seq, int64_t len, dlab_desc_seg *out)
{
    *out = (dlab_desc_seg){.tok_begin = 0, .n_tok = (int32_t)len};
    dlab_kv_slab_place(s, seq, 0, &out->k_off, &out->v_off);
    return 1;
}

void dlab_kv_slab_view(const dlab_kv_store *base, int layer, dlab_kv_view *out)
{
    const dlab_kv_slab *s = (const dlab_kv_slab *)base;
    const dlab_kv_config *cfg = &s->cfg;
    int64_t k_tok = token_bytes(cfg->k, cfg), v_tok = token_bytes(cfg->v, cfg);
    *out = (dlab_kv_view){
        .k = {s->k, (size_t)(layer * layer_bytes(cfg->k, cfg, s->cap))},
        .v = {s->v, (size_t)(layer * layer_bytes(cfg->v, cfg, s->cap))},
        .k_dtype = cfg->k->dtype,
        .v_dtype = cfg->v->dtype,
        .k_head_stride = s->cap * k_tok,
        .v_head_stride = s->cap * v_tok,
        .k_token_stride = k_tok,
        .v_token_stride = v_tok,
        .n_kv_heads = cfg->n_kv_heads,
        .head_dim = cfg->head_dim,
    };
}

void dlab_kv_slab_stats(const dlab_kv_store *base, dlab_kv_stats *out)
{
    const dlab_kv_slab *s = (const dlab_kv_slab *)base;
    int64_t per_token =
        s->layers * s->cfg.n_kv_heads * (token_bytes(s->cfg.k, &s->cfg) + token_bytes(s->cfg.v, &s->cfg));
    *out = (dlab_kv_stats){.pool_bytes = (int64_t)(s->k.bytes + s->v.bytes), .n_growths = s->n_growths};
    for (int64_t i = 0; i < s->cfg.max_seqs; i++) {
        if (s->live[i] < 0) continue;
        out->reserved_bytes += s->cap * per_token;
        out->used_bytes += s->live[i] * per_token;
    }
}
