/* A paged store on the reference device, texts for it, and the check of its books after each step. */
#ifndef DLAB_TESTS_ENGINE_PAGED_LAB_H
#define DLAB_TESTS_ENGINE_PAGED_LAB_H

#include "engine/kv/paged.h"
#include "engine_test.h"
#include "kv_device.h"

enum { BLOCK = 8, SEQS = 4, TOKENS = 128, LAYERS = 2, HEADS = 2, DIM = 4 };
enum { BLOCK_BYTES = LAYERS * 2 * HEADS * BLOCK * DIM * 4 };

typedef struct {
    kv_device dev;
    dlab_kv_config cfg;
    dlab_kv_store *s;
} lab;

static inline const dlab_kv_store_ops *ops(void) { return dlab_kv_store_find("paged"); }

static inline dlab_kv_layout layout(const char *what, const char *format, const char *scales, int64_t tail)
{
    dlab_kv_layout l;
    OK(dlab_kv_layout_make(what, dlab_kv_format_find(format), scales, BLOCK, tail, &l, err));
    return l;
}

static inline lab make(int64_t blocks, bool prefix_cache)
{
    return (lab){.dev = kv_device_make(false),
                 .cfg = {
                     .k = layout("kv.k", "f32", "token", 0),
                     .v = layout("kv.v", "f32", "token", 0),
                     .n_layers = LAYERS,
                     .n_kv_heads = HEADS,
                     .head_dim = DIM,
                     .max_seqs = SEQS,
                     .max_tokens = TOKENS,
                     .block_tokens = BLOCK,
                     .pool_bytes = (blocks + 1) * BLOCK_BYTES,
                     .prefix_cache = prefix_cache,
                 }};
}

static inline dlab_status create(lab *l, dlab_error *err)
{
    l->cfg.dev = &l->dev.base;
    return ops()->create(&l->cfg, &l->s, err);
}

static inline void start(lab *l) { OK(create(l, err)); }

static inline void check(const lab *l) { OK(dlab_kv_paged_check(l->s, err)); }

static inline void end(lab *l)
{
    ck_assert_ptr_null(kv_device_check(&l->dev));
    ops()->destroy(l->s);
    ck_assert_int_eq(l->dev.n_bufs, 0);
}

static inline dlab_kv_stats stats(const lab *l)
{
    dlab_kv_stats k;
    ops()->stats(l->s, &k);
    ck_assert_int_eq(k.pool_bytes, k.reserved_bytes + k.cached_bytes + k.free_bytes);
    return k;
}

static inline int64_t live_blocks(const lab *l) { return stats(l).reserved_bytes / BLOCK_BYTES; }
static inline int64_t cached_blocks(const lab *l) { return stats(l).cached_bytes / BLOCK_BYTES; }
static inline int64_t free_blocks(const lab *l)
{
    return (stats(l).free_bytes - stats(l).unusable_bytes) / BLOCK_BYTES;
}

/* Text t: ids that are its own from the position `own` on, and alike before. */
static inline const int32_t *text(int t, int own)
{
    static int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = i < own ? i : 1000 * (t + 1) + i;
    return ids;
}

static inline int64_t open_seq(const lab *l, int seq, const int32_t *ids, int64_t n)
{
    int64_t n_cached = -1;
    OK(ops()->open(l->s, seq, ids, n, &n_cached, err));
    check(l);
    return n_cached;
}

static inline dlab_status extend(const lab *l, int seq, int64_t len)
{
    dlab_error err = {0};
    dlab_status st = ops()->extend(l->s, seq, len, 0, &err);
    check(l);
    return st;
}

/* Where element 0 of K of the last layer's last head lies, of a token that is written (by its row) or read (by segments). */
static inline float *cell(const lab *l, int64_t off, int64_t index)
{
    dlab_kv_view v;
    ops()->view(l->s, LAYERS - 1, &v);
    return (float *)(void *)((char *)v.k.base.buf.ptr + v.k.base.off + off + (HEADS - 1) * v.k.head_stride +
                             index * v.k.token_stride);
}

static inline float held(const lab *l, int seq, int64_t pos)
{
    dlab_desc_seg segs[TOKENS];
    ops()->segments(l->s, seq, pos + 1, segs);
    return *cell(l, segs[pos / BLOCK].k_off, pos % BLOCK);
}

/* A step: room, the tokens' ids as their content, commit. */
static inline void write_seq(const lab *l, int seq, const int32_t *ids, int64_t from, int64_t to)
{
    ck_assert_int_eq(extend(l, seq, to), DLAB_OK);
    for (int64_t pos = from; pos < to; pos++) {
        dlab_desc_row row;
        ops()->place(l->s, seq, pos, &row);
        ck_assert_int_ge(row.k_slot, BLOCK_BYTES / LAYERS / 2); /* never block 0 */
        *cell(l, row.k_slot, row.index) = (float)ids[pos];
    }
    ops()->commit(l->s, seq, ids, to);
    check(l);
}

static inline void expect(const lab *l, int seq, const int32_t *ids, int64_t n)
{
    for (int64_t pos = 0; pos < n; pos++) ck_assert_float_eq(held(l, seq, pos), (float)ids[pos]);
}

static inline void close_seq(const lab *l, int seq)
{
    ops()->close(l->s, seq);
    check(l);
}

static inline void fork_seq(const lab *l, int parent, int child, int64_t len)
{
    OK(ops()->fork(l->s, parent, child, len, err));
    check(l);
}

/* A text of n tokens that some sequence has computed and left. */
static inline void leave(const lab *l, int t, int own, int64_t n)
{
    int64_t cached = open_seq(l, SEQS - 1, text(t, own), n);
    write_seq(l, SEQS - 1, text(t, own), cached, n);
    close_seq(l, SEQS - 1);
}

#endif
