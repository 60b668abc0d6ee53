/* A store on the ref device, driven as a step drives it: rows of known values are written by the oracle's kv_write where the
 * store places them, and read back where its segments and tails say. */
#ifndef DLAB_TESTS_ENGINE_KV_LAB_H
#define DLAB_TESTS_ENGINE_KV_LAB_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/kv/store.h"
#include "kernels/ref/ref.h"

#define LAYERS      2
#define HEADS       2
#define DIM         40 /* int4: one block and a part of one */
#define SEQS        3
#define TOKENS      100
#define GROUP       8
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        dlab_error err_ = {0}, *err __attribute__((unused)) = &err_;                                                   \
        ck_assert_msg((expr) == DLAB_OK, "%s: %s", #expr, err_.msg);                                                   \
    } while (0)

typedef struct {
    dlab_desc_head head;
    dlab_desc_row rows[TOKENS];
    dlab_desc_seq seq;
    dlab_desc_seg segs[TOKENS];
} step_desc;

typedef struct {
    dlab_mem *mem;
    dlab_device *dev;
    dlab_kv_store *s;
    dlab_kv_config cfg;
    dlab_at rows[2], desc, work;
    int32_t ids[SEQS][TOKENS];
    int64_t len[SEQS];
} lab;

static inline dlab_kv_layout layout_of(const char *what, const char *format, const char *scales, int64_t tail)
{
    dlab_kv_layout l;
    OK(dlab_kv_layout_make(what, dlab_kv_format_find(format), scales, GROUP, tail, &l, err));
    return l;
}

static inline dlab_kv_config config_of(dlab_kv_layout k, dlab_kv_layout v)
{
    return (dlab_kv_config){.k = k,
                            .v = v,
                            .n_layers = LAYERS,
                            .n_kv_heads = HEADS,
                            .head_dim = DIM,
                            .max_seqs = SEQS,
                            .max_tokens = TOKENS,
                            .first_tokens = 3,
                            .block_tokens = GROUP};
}

static inline dlab_kv_config f16_config(void)
{
    return config_of(layout_of("kv.k", "f16", "token", 0), layout_of("kv.v", "f16", "token", 0));
}

static inline dlab_at buffer(lab *l, size_t bytes)
{
    dlab_buf b;
    OK(l->dev->ops->alloc(l->dev, DLAB_POOL_SCRATCH, bytes, &b, err));
    return (dlab_at){b, 0};
}

static inline void lab_prepare(lab *l, dlab_kv_config cfg, size_t limit)
{
    memset(l, 0, sizeof *l);
    OK(dlab_mem_create(limit, &l->mem, err));
    const dlab_device_opts opts = {.threads = 1, .isa = "auto", .mem = l->mem};
    OK(dlab_device_open("ref", &opts, &l->dev, err));
    for (int p = 0; p < 2; p++) l->rows[p] = buffer(l, sizeof(float) * TOKENS * HEADS * DIM);
    l->desc = buffer(l, sizeof(step_desc));
    l->work = buffer(l, sizeof(float) * 4);
    l->cfg = cfg;
    l->cfg.dev = l->dev;
}

static inline void lab_open(lab *l, const char *store, dlab_kv_config cfg)
{
    lab_prepare(l, cfg, 0);
    OK(dlab_kv_store_find(store)->create(&l->cfg, &l->s, err));
}

static inline void lab_close(lab *l)
{
    if (l->s) l->s->ops->destroy(l->s);
    for (int p = 0; p < 2; p++) l->dev->ops->free(l->dev, DLAB_POOL_SCRATCH, l->rows[p].buf);
    l->dev->ops->free(l->dev, DLAB_POOL_SCRATCH, l->desc.buf);
    l->dev->ops->free(l->dev, DLAB_POOL_SCRATCH, l->work.buf);
    dlab_device_close(l->dev);
    dlab_mem_destroy(l->mem);
}

static inline void open_seq(lab *l, int seq)
{
    int64_t cached = -1;
    OK(l->s->ops->open(l->s, seq, NULL, 0, &cached, err));
    ck_assert_int_eq(cached, 0);
    l->len[seq] = 0;
}

static inline dlab_kv_stats stats_of(const lab *l)
{
    dlab_kv_stats st;
    l->s->ops->stats(l->s, &st);
    ck_assert_int_eq(st.pool_bytes, st.reserved_bytes + st.cached_bytes + st.free_bytes);
    ck_assert_int_le(st.used_bytes, st.reserved_bytes);
    ck_assert_int_le(st.unusable_bytes, st.free_bytes);
    return st;
}

/* An element of K or V depends on what and where it is, and nothing else. */
static float value_of(int32_t id, int64_t pos, int layer, int plane, int head, int i)
{
    uint64_t x = (uint64_t)id;
    const uint64_t parts[] = {(uint64_t)pos, (uint64_t)layer, (uint64_t)plane, (uint64_t)head, (uint64_t)i};
    for (size_t p = 0; p < N_OF(parts); p++) x = dlab_splitmix64(&x) + parts[p];
    return (float)((double)(dlab_splitmix64(&x) >> 11) * 0x1p-52 - 1);
}

/* The descriptor of a step that brings tokens first … first + n − 1 of a sequence. */
static inline void describe(const lab *l, int seq, int64_t first, int64_t n, step_desc *d)
{
    const dlab_kv_store_ops *ops = l->s->ops;
    memset(d, 0, sizeof *d);
    d->head = (dlab_desc_head){.n_rows = (int32_t)n,
                               .n_seqs = 1,
                               .row_off = offsetof(step_desc, rows),
                               .seq_off = offsetof(step_desc, seq),
                               .seg_off = offsetof(step_desc, segs)};
    d->seq = (dlab_desc_seq){.n_rows = (int32_t)n, .len = (int32_t)(first + n)};
    ck_assert_int_le(ops->max_segs(&l->cfg), TOKENS);
    d->seq.n_segs = d->head.n_segs = ops->segments(l->s, seq, first + n, d->segs);
    ops->tails(l->s, seq, first + n, &d->seq);
    for (int64_t i = 0; i < n; i++) {
        d->rows[i] = (dlab_desc_row){.token = l->ids[seq][first + i], .pos = (int32_t)(first + i)};
        ops->place(l->s, seq, first + i, &d->rows[i]);
    }
}

static inline void write_layer(lab *l, int seq, int64_t first, int64_t n, int layer)
{
    static float x[TOKENS * HEADS * DIM];
    for (int plane = 0; plane < 2; plane++) {
        for (int64_t r = 0; r < n * HEADS * DIM; r++) {
            int64_t pos = first + r / (HEADS * DIM);
            x[r] = value_of(l->ids[seq][pos], pos, layer, plane, (int)(r / DIM % HEADS), (int)(r % DIM));
        }
        OK(l->dev->ops->upload(l->dev, l->rows[plane], x, (size_t)(n * HEADS * DIM) * sizeof *x, err));
    }
    dlab_kv_write_args a = {.k = l->rows[0], .v = l->rows[1], .desc = l->desc, .work = l->work, .n_rows = (int32_t)n};
    l->s->ops->view(l->s, layer, &a.kv);
    OK(dlab_submit_kv_write(l->dev, a, err));
}

/* The oracle's reading of each token is near what was written. */
static inline void check_values(const lab *l, int seq, int64_t len, int layer)
{
    step_desc d;
    describe(l, seq, 0, len, &d);
    dlab_kv_view kv;
    l->s->ops->view(l->s, layer, &kv);
    double got[DLAB_REF_MAX_HEAD_DIM];
    for (int64_t i = 0; i < len * HEADS * 2; i++) {
        int64_t pos = i / (HEADS * 2);
        int head = (int)(i / 2 % HEADS), plane = (int)(i % 2);
        (plane ? dlab_ref_cached_v : dlab_ref_cached_k)(&kv, &d.head, 0, (int32_t)pos, head, got);
        for (int e = 0; e < DIM; e++) {
            double want = (double)value_of(l->ids[seq][pos], pos, layer, plane, head, e);
            ck_assert_msg(got[e] - want < 0.13 && want - got[e] < 0.13,
                          "seq %d layer %d plane %d head %d pos %lld element %d: %g, written %g", seq, layer, plane,
                          head, (long long)pos, e, got[e], want);
        }
    }
}

static inline void step(lab *l, int seq, int64_t n, uint64_t seed)
{
    int64_t first = l->len[seq], from = l->s->ops->retains ? first : 0; /* nothing retained: the whole prefix again */
    OK(l->s->ops->extend(l->s, seq, first + n, first + n, err));
    dlab_rng r;
    dlab_rng_seed(&r, seed);
    for (int64_t i = 0; i < n; i++) l->ids[seq][first + i] = (int32_t)dlab_rng_below(&r, 50000);
    step_desc d;
    describe(l, seq, from, first + n - from, &d);
    OK(l->dev->ops->upload(l->dev, l->desc, &d, sizeof d, err));
    for (int layer = 0; layer < LAYERS; layer++) {
        write_layer(l, seq, from, first + n - from, layer);
        if (!l->s->ops->retains) check_values(l, seq, first + n, layer);
    }
    l->len[seq] = first + n;
    l->s->ops->commit(l->s, seq, l->ids[seq], first + n);
}

/* ---- a sequence's bytes, wherever they lie ---- */

typedef struct {
    uint8_t *bytes;
    size_t n, cap;
} dump;

static inline void put(dump *d, const void *src, size_t n)
{
    if (d->n + n > d->cap) {
        d->cap = 2 * (d->n + n);
        d->bytes = realloc(d->bytes, d->cap);
        ck_assert_ptr_nonnull(d->bytes);
    }
    memcpy(d->bytes + d->n, src, n);
    d->n += n;
}

static inline uint8_t *downloaded(const lab *l, dlab_at at, size_t bytes)
{
    uint8_t *p = malloc(bytes + 1);
    ck_assert_ptr_nonnull(p);
    if (bytes) OK(l->dev->ops->download(l->dev, p, at, bytes, err));
    OK(l->dev->ops->sync(l->dev, err));
    return p;
}

/* One token of one head: its tail, or its elements and the scales that they need, found as kernels/op.h says. */
static inline void put_token(dump *d, const dlab_kv_plane *p, const uint8_t *region, const uint8_t *ring, int64_t index,
                             int64_t pos, bool sealed)
{
    put(d, &sealed, 1);
    if (!sealed) {
        put(d, ring + pos % p->tail_cap * DIM * 2, DIM * 2);
        return;
    }
    put(d, region + index * p->token_stride, (size_t)p->token_stride);
    int64_t per_token = p->dtype == DLAB_U4 ? (DIM + 31) / 32 : 1, first = index * per_token, n = per_token;
    if (p->scales == DLAB_SCALES_NONE) return;
    if (p->scales == DLAB_SCALES_BLOCK) first = index / p->group, n = 1;
    if (p->scales == DLAB_SCALES_CHANNEL) first = index / p->group * DIM, n = DIM;
    put(d, region + p->meta_off + 4 * first, (size_t)(4 * n));
}

static inline void put_plane(dump *d, const lab *l, const step_desc *desc, const dlab_kv_plane *p, int64_t len,
                             bool keys)
{
    uint8_t *layer = downloaded(l, p->base, p->bytes), *tails = downloaded(l, p->tail, p->tail_bytes);
    int32_t sealed = keys ? desc->seq.k_sealed_from : desc->seq.v_sealed_from;
    ck_assert_int_eq(sealed, keys ? desc->seq.k_sealed : desc->seq.v_sealed);
    for (int32_t s = 0; s < desc->seq.n_segs; s++) {
        const dlab_desc_seg *g = &desc->segs[s];
        int64_t off = keys ? g->k_off : g->v_off;
        for (int64_t i = 0; i < (int64_t)g->n_tok * HEADS; i++) {
            int64_t index = i / HEADS, head = i % HEADS, pos = g->tok_begin + index;
            if (pos >= len) continue;
            put_token(d, p, layer + off + head * p->head_stride,
                      tails + desc->seq.tail_slot * p->tail_seq_stride + head * p->tail_head_stride, index, pos,
                      pos < sealed);
        }
    }
    free(layer);
    free(tails);
}

/* The first len tokens of what a sequence holds. */
static inline dump dump_of(const lab *l, int seq, int64_t len)
{
    dump d = {0};
    step_desc desc;
    describe(l, seq, l->len[seq], 0, &desc);
    for (int layer = 0; layer < LAYERS; layer++) {
        dlab_kv_view kv;
        l->s->ops->view(l->s, layer, &kv);
        put_plane(&d, l, &desc, &kv.k, len, true);
        put_plane(&d, l, &desc, &kv.v, len, false);
    }
    ck_assert_uint_ge(d.n, (size_t)(len * LAYERS * HEADS * 2));
    return d;
}

static inline void same_bytes(const lab *a, int seq_a, const lab *b, int seq_b, int64_t len, const char *what)
{
    dump da = dump_of(a, seq_a, len), db = dump_of(b, seq_b, len);
    ck_assert_msg(da.n == db.n && (da.n == 0 || memcmp(da.bytes, db.bytes, da.n) == 0),
                  "%s: %s %s tail %d / %s %s tail %d: sequence %d of %lld tokens differs", what, a->cfg.k.format->name,
                  a->cfg.k.group > 1 ? "grouped" : "", a->cfg.k.tail, a->cfg.v.format->name,
                  a->cfg.v.group > 1 ? "grouped" : "", a->cfg.v.tail, seq_a, (long long)len);
    free(da.bytes);
    free(db.bytes);
}

/* Every format with every way of sharing scales, without and with a tail. */
#define MAX_LAYOUTS 64
static inline int all_layouts(const char *what, dlab_kv_layout *out)
{
    static const char *const scales[] = {"token", "tensor", "block", "channel"};
    int n = 0;
    for (int f = 0; dlab_kv_formats[f]; f++) {
        for (size_t s = 0; s < N_OF(scales); s++) {
            for (int64_t tail = 0; tail <= 5; tail += 5) {
                ck_assert_int_lt(n, MAX_LAYOUTS);
                n += dlab_kv_layout_make(what, dlab_kv_formats[f], scales[s], GROUP, tail, &out[n], NULL) == DLAB_OK;
            }
        }
    }
    return n;
}

/* Each layout of K beside ever another one of V; *n: how many there are. */
static inline dlab_kv_config config_at(int i, int *n)
{
    dlab_kv_layout k[MAX_LAYOUTS], v[MAX_LAYOUTS];
    int n_v = all_layouts("kv.v", v);
    *n = all_layouts("kv.k", k);
    ck_assert_int_ge(*n, 22); /* 3 plain ones, int8 in 7 ways, fp8 twice in 5, int4 in 2 */
    return config_of(k[i], v[(5 * i + 3) % n_v]);
}

static inline dlab_kv_config growing(dlab_kv_config cfg)
{
    cfg.grow = true;
    return cfg;
}

#endif
