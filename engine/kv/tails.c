/* The most recent tokens of each sequence in f16: rings in the device's memory, and how far each sequence is sealed. */
#include <stdlib.h>
#include <string.h>

#include "engine/kv/swap.h"

/* One plane of the tails. */
typedef struct {
    const dlab_kv_layout *layout;
    dlab_buf *ring, *marks;
    int64_t **sealed, **marked;
} side;

typedef struct {
    side of[2];
} sides;

static sides sides_of(const dlab_kv_config *cfg, dlab_kv_tails *t)
{
    return (sides){{{&cfg->k, &t->k, &t->k_marks, &t->k_sealed, &t->k_marked},
                    {&cfg->v, &t->v, &t->v_marks, &t->v_sealed, &t->v_marked}}};
}

/* Bytes of one sequence's rings in one layer. */
static int64_t seq_bytes(const dlab_kv_config *cfg, const dlab_kv_layout *l)
{
    return cfg->n_kv_heads * dlab_kv_tail_bytes(l, cfg->head_dim);
}

static int64_t plane_bytes(const dlab_kv_config *cfg, const dlab_kv_layout *l, int32_t layers)
{
    return layers * cfg->max_seqs * seq_bytes(cfg, l);
}

int64_t dlab_kv_tails_bytes(const dlab_kv_config *cfg, int32_t layers)
{
    return 2 * (plane_bytes(cfg, &cfg->k, layers) + plane_bytes(cfg, &cfg->v, layers)); /* rings and marks */
}

static dlab_status create_side(const dlab_kv_config *cfg, int32_t layers, const side *s, dlab_error *err)
{
    size_t bytes = (size_t)plane_bytes(cfg, s->layout, layers);
    if (bytes == 0) return DLAB_OK;
    *s->sealed = calloc((size_t)cfg->max_seqs, sizeof **s->sealed);
    *s->marked = calloc((size_t)cfg->max_seqs, sizeof **s->marked);
    if (!*s->sealed || !*s->marked) {
        return DLAB_FAIL(err, DLAB_EOOM, "kv tails: no memory for %lld sequences", (long long)cfg->max_seqs);
    }
    DLAB_TRY(cfg->dev->ops->alloc(cfg->dev, DLAB_POOL_KV, bytes, s->ring, err));
    return cfg->dev->ops->alloc(cfg->dev, DLAB_POOL_KV, bytes, s->marks, err);
}

dlab_status dlab_kv_tails_create(const dlab_kv_config *cfg, int32_t layers, dlab_kv_tails *out, dlab_error *err)
{
    *out = (dlab_kv_tails){0};
    sides both = sides_of(cfg, out);
    dlab_status st = DLAB_OK;
    for (int i = 0; i < 2 && st == DLAB_OK; i++) st = create_side(cfg, layers, &both.of[i], err);
    if (st != DLAB_OK) dlab_kv_tails_destroy(cfg, out);
    return st;
}

void dlab_kv_tails_destroy(const dlab_kv_config *cfg, dlab_kv_tails *t)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        const side *s = &both.of[i];
        if (s->ring->ptr) cfg->dev->ops->free(cfg->dev, DLAB_POOL_KV, *s->ring);
        if (s->marks->ptr) cfg->dev->ops->free(cfg->dev, DLAB_POOL_KV, *s->marks);
        free(*s->sealed);
        free(*s->marked);
    }
    *t = (dlab_kv_tails){0};
}

void dlab_kv_tails_open(const dlab_kv_config *cfg, dlab_kv_tails *t, int seq, int64_t n_cached)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        if (*both.of[i].sealed) (*both.of[i].sealed)[seq] = n_cached;
    }
}

/* Copies one sequence's rings of all layers. */
static dlab_status copy_rings(const dlab_kv_config *cfg, const dlab_kv_layout *l, int32_t layers, dlab_buf to,
                              int child, dlab_buf from, int parent, dlab_error *err)
{
    dlab_device *dev = cfg->dev;
    int64_t bytes = seq_bytes(cfg, l);
    for (int64_t layer = 0; layer < layers; layer++) {
        dlab_at dst = {to, (size_t)((layer * cfg->max_seqs + child) * bytes)};
        dlab_at src = {from, (size_t)((layer * cfg->max_seqs + parent) * bytes)};
        DLAB_TRY(dev->ops->copy(dev, dst, src, (size_t)bytes, err));
    }
    return DLAB_OK;
}

dlab_status dlab_kv_tails_can_cut(const dlab_kv_config *cfg, const dlab_kv_tails *t, int seq, int64_t len,
                                  dlab_error *err)
{
    dlab_kv_tails copy = *t;
    sides both = sides_of(cfg, &copy);
    for (int i = 0; i < 2; i++) {
        const side *s = &both.of[i];
        if (!*s->sealed || (*s->sealed)[seq] <= len || len % s->layout->group == 0) continue;
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv cache: a sequence cannot go on behind token %lld of one that has sealed %lld in groups of "
                         "%d: take a multiple of the group, or scales of single tokens",
                         (long long)len, (long long)(*s->sealed)[seq], s->layout->group);
    }
    return DLAB_OK;
}

void dlab_kv_tails_cut(const dlab_kv_config *cfg, dlab_kv_tails *t, int seq, int64_t len)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        int64_t *sealed = *both.of[i].sealed;
        if (sealed && sealed[seq] > len) sealed[seq] = len;
    }
}

dlab_status dlab_kv_tails_fork(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int parent, int child,
                               dlab_error *err)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        const side *s = &both.of[i];
        if (!*s->sealed) continue;
        DLAB_TRY(copy_rings(cfg, s->layout, layers, *s->ring, child, *s->ring, parent, err));
        (*s->sealed)[child] = (*s->sealed)[parent];
    }
    return DLAB_OK;
}

void dlab_kv_tails_commit(const dlab_kv_config *cfg, dlab_kv_tails *t, int seq, int64_t len)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        int64_t *sealed = *both.of[i].sealed;
        if (sealed) sealed[seq] = dlab_kv_sealed(both.of[i].layout, len, sealed[seq]);
    }
}

/* Rings and how far they are sealed, to the marks or back from them. */
static dlab_status copy_marks(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq, bool back,
                              dlab_error *err)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        const side *s = &both.of[i];
        if (!*s->sealed) continue;
        DLAB_TRY(copy_rings(cfg, s->layout, layers, back ? *s->ring : *s->marks, seq, back ? *s->marks : *s->ring, seq,
                            err));
        if (back)
            (*s->sealed)[seq] = (*s->marked)[seq];
        else
            (*s->marked)[seq] = (*s->sealed)[seq];
    }
    return DLAB_OK;
}

dlab_status dlab_kv_tails_mark(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq, dlab_error *err)
{
    return copy_marks(cfg, t, layers, seq, false, err);
}

dlab_status dlab_kv_tails_rewind(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq, dlab_error *err)
{
    return copy_marks(cfg, t, layers, seq, true, err);
}

static void describe_side(const dlab_kv_layout *l, const int64_t *sealed, int seq, int64_t len, int32_t *from,
                          int32_t *to)
{
    *from = (int32_t)(sealed ? sealed[seq] : len);
    *to = (int32_t)(sealed ? dlab_kv_sealed(l, len, sealed[seq]) : len);
}

void dlab_kv_tails_describe(const dlab_kv_config *cfg, const dlab_kv_tails *t, int seq, int64_t len, dlab_desc_seq *out)
{
    out->tail_slot = seq;
    describe_side(&cfg->k, t->k_sealed, seq, len, &out->k_sealed_from, &out->k_sealed);
    describe_side(&cfg->v, t->v_sealed, seq, len, &out->v_sealed_from, &out->v_sealed);
}

static void view_side(const dlab_kv_config *cfg, const dlab_kv_layout *l, dlab_buf ring, int layer, dlab_kv_plane *out)
{
    int64_t per_seq = seq_bytes(cfg, l), per_layer = cfg->max_seqs * per_seq;
    out->tail = (dlab_at){ring, (size_t)(layer * per_layer)};
    out->tail_bytes = (size_t)per_layer;
    out->tail_seq_stride = per_seq;
    out->tail_head_stride = dlab_kv_tail_bytes(l, cfg->head_dim);
    out->tail_cap = l->tail_cap;
}

void dlab_kv_tails_view(const dlab_kv_config *cfg, const dlab_kv_tails *t, int layer, dlab_kv_view *out)
{
    view_side(cfg, &cfg->k, t->k, layer, &out->k);
    view_side(cfg, &cfg->v, t->v, layer, &out->v);
}

static int64_t least(const int64_t *k, const int64_t *v, int seq, int64_t len)
{
    if (k && k[seq] < len) len = k[seq];
    if (v && v[seq] < len) len = v[seq];
    return len;
}

int64_t dlab_kv_tails_sealed(const dlab_kv_tails *t, int seq, int64_t len)
{
    return least(t->k_sealed, t->v_sealed, seq, len);
}

int64_t dlab_kv_tails_marked(const dlab_kv_tails *t, int seq, int64_t len)
{
    return least(t->k_marked, t->v_marked, seq, len);
}

int64_t dlab_kv_tails_ring_bytes(const dlab_kv_config *cfg, int32_t layers)
{
    return layers * (seq_bytes(cfg, &cfg->k) + seq_bytes(cfg, &cfg->v));
}

dlab_status dlab_kv_tails_swap(const dlab_kv_config *cfg, dlab_kv_tails *t, int32_t layers, int seq,
                               dlab_kv_image *image, dlab_kv_cursor *c, dlab_error *err)
{
    sides both = sides_of(cfg, t);
    for (int i = 0; i < 2; i++) {
        const side *s = &both.of[i];
        if (!*s->sealed) continue;
        const int64_t bytes = seq_bytes(cfg, s->layout);
        for (int64_t layer = 0; layer < layers; layer++) {
            const dlab_at ring = {*s->ring, (size_t)((layer * cfg->max_seqs + seq) * bytes)};
            DLAB_TRY(dlab_kv_swap_move(c, ring, bytes, err));
        }
        int64_t *kept = i ? &image->v_sealed : &image->k_sealed, *mine = &(*s->sealed)[seq];
        if (c->out)
            *kept = *mine;
        else
            *mine = *kept;
    }
    return DLAB_OK;
}
