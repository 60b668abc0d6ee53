/* The content oracle: drives a store with operations that dice choose, keeps a model of what every (sequence, layer, position)
 * must hold, and compares. What a token's K and V are follows from the ids of its whole prefix, so that blocks that are shared
 * by mistake, or not copied, or found under a stale hash, show by their content. A fault is told and aborts. */
#ifndef DLAB_TESTS_ENGINE_KV_ORACLE_H
#define DLAB_TESTS_ENGINE_KV_ORACLE_H

#include <math.h>
#include <stdarg.h>

#include "base/rng.h"
#include "engine/kv/paged.h"
#include "engine/kv/swap.h"
#include "tests/engine/kv_device.h"

#ifndef ORACLE_HEADS /* a fuzzer takes less, for speed */
#define ORACLE_HEADS 2
#define ORACLE_DIM   8
#endif

enum {
    ORACLE_SEQS = 6,
    ORACLE_TOKENS = 48,
    ORACLE_LAYERS = 2,
    ORACLE_ROWS = 3 * (ORACLE_TOKENS + 2),
    ORACLE_TEXTS = 3,
    ORACLE_SWEEP = 256, /* operations between two comparisons of everything */
    ORACLE_POOL = 512,  /* most blocks that a test's pool has */
    ORACLE_PIECE = 200, /* bytes of a piece of the swap area: it divides nothing */
};

/* What chooses: a seed, or a fuzzer's bytes. */
typedef struct {
    dlab_rng rng;
    const uint8_t *bytes; /* NULL: the seed */
    size_t n, at;
} oracle_dice;

static inline uint64_t oracle_draw(oracle_dice *d, uint64_t below)
{
    if (!d->bytes) return dlab_rng_u64(&d->rng) % below;
    return d->at < d->n ? d->bytes[d->at++] % below : 0;
}

typedef struct {
    const dlab_kv_store_ops *ops;
    const char *k, *v, *k_scales;
    int64_t k_tail, v_tail, block;
    bool grow, tight, prefix_cache,
        same_hash; /* tight: a pool of a third of what could be used; same_hash: always collides */
} oracle_case;

typedef struct {
    bool open, retired;
    bool away;       /* not open: copied out, to come back */
    int64_t n_known; /* ids that are there: the prompt, and what was appended */
    int64_t len;     /* of these, what was computed: held by a store that retains */
    int64_t marked;
    int32_t ids[ORACLE_TOKENS];
    uint64_t prefix[ORACLE_TOKENS]; /* hash of ids 0 … i */
} oracle_seq;

typedef struct {
    oracle_case c;
    oracle_dice dice;
    char name[160];
    long n_ops;
    kv_device dev, swap_dev;
    dlab_kv_swap area;
    dlab_kv_image images[ORACLE_SEQS];
    dlab_kv_config cfg;
    dlab_kv_store *store;
    int32_t texts[ORACLE_TEXTS][ORACLE_TOKENS];
    oracle_seq seqs[ORACLE_SEQS];
    bool was_free[ORACLE_POOL + 1];
    struct {
        long full, forks, hits, compared, swaps, swaps_refused;
        dlab_kv_stats stats;
    } seen;
} oracle;

__attribute__((format(printf, 2, 3), noreturn)) static inline void oracle_fail(const oracle *o, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s, operation %ld: ", o->name, o->n_ops);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

#define ORACLE_CHECK(o, cond, ...)                                                                                     \
    do {                                                                                                               \
        if (!(cond)) oracle_fail(o, __VA_ARGS__);                                                                      \
    } while (0)

/* ---- what must be stored ---- */

static inline uint64_t oracle_mix(uint64_t a, uint64_t b)
{
    uint64_t state = a * 0x9E3779B97F4A7C15u + b;
    return dlab_splitmix64(&state);
}

/* Element e of K (plane 0) or V (plane 1), in [−1, 1), exact in f16. */
static inline float oracle_value(uint64_t prefix, int layer, int plane, int head, int e)
{
    int place = ((layer * 2 + plane) * ORACLE_HEADS + head) * ORACLE_DIM + e;
    uint64_t h = oracle_mix(prefix, (uint64_t)place);
    return (float)(int64_t)(h >> 54) / 512.0f - 1.0f;
}

static inline void oracle_append(oracle_seq *m, int32_t id)
{
    m->ids[m->n_known] = id;
    m->prefix[m->n_known] = oracle_mix(m->n_known ? m->prefix[m->n_known - 1] : 1, (uint64_t)id);
    m->n_known++;
}

/* ---- descriptors ---- */

typedef struct {
    dlab_desc_head head;
    dlab_desc_row rows[ORACLE_ROWS];
    dlab_desc_seq seqs[ORACLE_SEQS];
    dlab_desc_seg segs[ORACLE_SEQS * ORACLE_TOKENS];
} oracle_desc;

static inline void oracle_begin(oracle_desc *d)
{
    d->head = (dlab_desc_head){.row_off = offsetof(oracle_desc, rows),
                               .seq_off = offsetof(oracle_desc, seqs),
                               .seg_off = offsetof(oracle_desc, segs),
                               .logit_off = sizeof *d};
}

/* Adds a sequence that will hold len tokens, shown up to `span`. */
static inline dlab_desc_seq *oracle_add_seq(const oracle *o, oracle_desc *d, int seq, int64_t len, int64_t span)
{
    dlab_desc_seq *q = &d->seqs[d->head.n_seqs++];
    *q = (dlab_desc_seq){.row_begin = d->head.n_rows, .seg_begin = d->head.n_segs, .len = (int32_t)len};
    q->n_segs = o->c.ops->segments(o->store, seq, span > len ? span : len, d->segs + d->head.n_segs);
    d->head.n_segs += q->n_segs;
    o->c.ops->tails(o->store, seq, len, q);
    return q;
}

/* Segments must follow each other and cover the tokens, inside the layer. */
static inline void oracle_check_segments(const oracle *o, const oracle_desc *d, const dlab_desc_seq *q, int64_t span)
{
    dlab_kv_view v;
    o->c.ops->view(o->store, 0, &v);
    int64_t at = 0, most = o->c.ops->max_segs(&o->cfg);
    ORACLE_CHECK(o, q->n_segs <= most, "%d segments, at most %lld were announced", q->n_segs, (long long)most);
    for (int32_t i = 0; i < q->n_segs; i++) {
        const dlab_desc_seg *g = &d->segs[q->seg_begin + i];
        ORACLE_CHECK(o, g->tok_begin == at && g->n_tok >= 0, "segment %d begins at %d, not %lld", i, g->tok_begin,
                     (long long)at);
        ORACLE_CHECK(o,
                     g->k_off >= 0 && g->k_off + ORACLE_HEADS * v.k.head_stride <= (int64_t)v.k.bytes &&
                         g->v_off >= 0 && g->v_off + ORACLE_HEADS * v.v.head_stride <= (int64_t)v.v.bytes,
                     "segment %d leaves the layer", i);
        at += g->n_tok;
    }
    ORACLE_CHECK(o, at == (span > q->len ? span : q->len), "segments cover %lld tokens", (long long)at);
}

/* ---- comparing ---- */

/* Error of int8 over values in [−1, 1), after f16 or not. */
static inline double oracle_tolerance(dlab_dtype t, bool in_tail)
{
    return t == DLAB_F32 || t == DLAB_F16 || in_tail ? 0 : 1.0 / 255 * 1.001;
}

static inline void oracle_compare_vector(oracle *o, const oracle_desc *d, const dlab_kv_view *v, int seq, int64_t pos,
                                         int layer, int head)
{
    for (int plane = 0; plane < 2; plane++) {
        double got[ORACLE_DIM];
        (plane ? dlab_ref_cached_v : dlab_ref_cached_k)(v, &d->head, 0, (int32_t)pos, head, got);
        bool in_tail = pos >= (plane ? d->seqs[0].v_sealed : d->seqs[0].k_sealed);
        double tolerance = oracle_tolerance(plane ? v->v.dtype : v->k.dtype, in_tail);
        for (int e = 0; e < ORACLE_DIM; e++) {
            double want = (double)oracle_value(o->seqs[seq].prefix[pos], layer, plane, head, e);
            ORACLE_CHECK(o, fabs(got[e] - want) <= tolerance,
                         "%c of sequence %d, layer %d, position %lld of %lld, head %d, element %d: %g, expected %g",
                         plane ? 'V' : 'K', seq, layer, (long long)pos, (long long)o->seqs[seq].len, head, e, got[e],
                         want);
        }
    }
    o->seen.compared++;
}

/* Everything that a sequence holds, or a few places of it; false: it holds nothing. */
static inline bool oracle_compare(oracle *o, int seq, bool all)
{
    const oracle_seq *m = &o->seqs[seq];
    if (!m->open || m->retired || m->len == 0 || !o->c.ops->retains) return false;
    static oracle_desc d;
    oracle_begin(&d);
    oracle_add_seq(o, &d, seq, m->len, m->len);
    oracle_check_segments(o, &d, &d.seqs[0], m->len);
    for (int layer = 0; layer < ORACLE_LAYERS; layer++) {
        dlab_kv_view v;
        o->c.ops->view(o->store, layer, &v);
        for (int64_t pos = 0; all && pos < m->len; pos++)
            for (int head = 0; head < ORACLE_HEADS; head++) oracle_compare_vector(o, &d, &v, seq, pos, layer, head);
        if (all) continue;
        oracle_compare_vector(o, &d, &v, seq, m->len - 1, layer, layer % ORACLE_HEADS);
        oracle_compare_vector(o, &d, &v, seq,
                              (int64_t)(oracle_mix(m->prefix[0], (uint64_t)o->n_ops) % (uint64_t)m->len), layer,
                              (int)(o->n_ops % ORACLE_HEADS));
    }
    return true;
}

/* ---- what must hold after each operation ---- */

static inline dlab_kv_paged *oracle_paged(const oracle *o)
{
    return strcmp(o->c.ops->name, "paged") == 0 ? (dlab_kv_paged *)o->store : NULL;
}

static inline void oracle_fill_block(dlab_kv_paged *s, int64_t b, int byte)
{
    for (int64_t layer = 0; layer < s->cfg.n_layers; layer++) {
        memset((char *)s->k.ptr + (layer * (1 + s->pool.n) + b) * s->k_block, byte, (size_t)s->k_block);
        memset((char *)s->v.ptr + (layer * (1 + s->pool.n) + b) * s->v_block, byte, (size_t)s->v_block);
    }
}

/* Freed blocks are overwritten at once, so that whoever still looks at one sees nonsense. */
static inline void oracle_poison_freed(oracle *o)
{
    dlab_kv_paged *s = oracle_paged(o);
    for (int64_t b = 1; s && b <= s->pool.n; b++) {
        bool is_free = s->pool.blocks[b].refs == 0 && !s->pool.blocks[b].kept;
        if (is_free && !o->was_free[b]) oracle_fill_block(s, b, 0xFF);
        o->was_free[b] = is_free;
    }
}

static inline void oracle_check_padding_block(const oracle *o)
{
    const dlab_kv_paged *s = oracle_paged(o);
    for (int64_t layer = 0; s && layer < s->cfg.n_layers; layer++) {
        ORACLE_CHECK(o,
                     kv_is((char *)s->k.ptr + layer * (1 + s->pool.n) * s->k_block, 0, (size_t)s->k_block) &&
                         kv_is((char *)s->v.ptr + layer * (1 + s->pool.n) * s->v_block, 0, (size_t)s->v_block),
                     "the block for padding rows was written in layer %lld", (long long)layer);
    }
}

static inline void oracle_check_stats(oracle *o)
{
    dlab_kv_stats k;
    o->c.ops->stats(o->store, &k);
    ORACLE_CHECK(o, k.pool_bytes == o->dev.bytes, "the pool is %lld bytes, allocated %lld", (long long)k.pool_bytes,
                 (long long)o->dev.bytes);
    ORACLE_CHECK(o,
                 k.reserved_bytes + k.cached_bytes + k.free_bytes == k.pool_bytes && k.used_bytes >= 0 &&
                     k.used_bytes <= k.reserved_bytes && k.unusable_bytes <= k.free_bytes && k.shared_bytes >= 0 &&
                     k.cached_bytes >= 0 && k.free_bytes >= 0,
                 "pool %lld: reserved %lld (used %lld), cached %lld, free %lld (unusable %lld), shared %lld",
                 (long long)k.pool_bytes, (long long)k.reserved_bytes, (long long)k.used_bytes,
                 (long long)k.cached_bytes, (long long)k.free_bytes, (long long)k.unusable_bytes,
                 (long long)k.shared_bytes);
    o->seen.stats = k;
}

static inline void oracle_check(oracle *o)
{
    dlab_error err = {0};
    oracle_poison_freed(o);
    if (oracle_paged(o)) {
        ORACLE_CHECK(o, dlab_kv_paged_check(o->store, &err) == DLAB_OK, "%s", err.msg);
    }
    oracle_check_stats(o);
    uint64_t any = oracle_mix((uint64_t)o->n_ops, 7);
    for (uint64_t i = 0; i < ORACLE_SEQS && !oracle_compare(o, (int)((any + i) % ORACLE_SEQS), false); i++) continue;
    if (o->n_ops % ORACLE_SWEEP != 0) return;
    const char *wrong = kv_device_check(&o->dev);
    if (!wrong) wrong = kv_device_check(&o->swap_dev);
    ORACLE_CHECK(o, !wrong, "%s", wrong);
    oracle_check_padding_block(o);
    for (int i = 0; i < ORACLE_SEQS; i++) oracle_compare(o, i, true);
}

/* ---- operations ---- */

/* The next id of a text; now and then another, so that texts part ways. */
static inline int32_t oracle_next_id(oracle *o, int64_t pos)
{
    uint64_t d = oracle_draw(&o->dice, 64);
    return d < 4 ? (int32_t)(100 + d) : o->texts[d % ORACLE_TEXTS == 1 ? 1 : 0][pos];
}

static inline void oracle_open(oracle *o, int seq)
{
    oracle_seq *m = &o->seqs[seq];
    dlab_error err = {0};
    int64_t n = 1 + (int64_t)oracle_draw(&o->dice, ORACLE_TOKENS - 8), n_cached = -1;
    int64_t cut = oracle_draw(&o->dice, 4) ? n : (int64_t)oracle_draw(&o->dice, (uint64_t)n);
    uint64_t text = oracle_draw(&o->dice, ORACLE_TEXTS);
    *m = (oracle_seq){.marked = -1};
    for (int64_t i = 0; i < n; i++) {
        oracle_append(m, i < cut ? o->texts[text][i] : (int32_t)oracle_draw(&o->dice, 2));
    }
    dlab_status st = o->c.ops->open(o->store, seq, m->ids, n, &n_cached, &err);
    if (st == DLAB_EFULL) {
        ORACLE_CHECK(o, o->c.tight, "a pool for all sequences has no place: %s", err.msg);
        o->seen.full++;
        return;
    }
    ORACLE_CHECK(o, st == DLAB_OK, "open: %s", err.msg);
    ORACLE_CHECK(o,
                 n_cached >= 0 && n_cached <= n && n_cached % o->c.block == 0 && (o->c.prefix_cache || n_cached == 0),
                 "%lld of %lld tokens cached", (long long)n_cached, (long long)n);
    m->open = true;
    m->len = n_cached;
    o->seen.hits += n_cached > 0;
}

static inline void oracle_fork(oracle *o, int parent, int child)
{
    const oracle_seq *p = &o->seqs[parent];
    oracle_seq *m = &o->seqs[child];
    dlab_error err = {0};
    int64_t len = oracle_draw(&o->dice, 2) ? p->len : (int64_t)oracle_draw(&o->dice, (uint64_t)p->len + 1);
    dlab_status st = o->c.ops->fork(o->store, parent, child, len, &err);
    if (st != DLAB_OK) {
        bool grouped = o->cfg.k.group > 1 || o->cfg.v.group > 1;
        ORACLE_CHECK(o, (st == DLAB_EFULL && o->c.tight) || (st == DLAB_EIMPOSSIBLE && grouped && len < p->len),
                     "fork: %s", err.msg);
        return;
    }
    *m = *p;
    m->n_known = m->len = len;
    m->marked = -1;
    o->seen.forks++;
}

/* One sequence's part of a step. */
typedef struct {
    int seq;
    int64_t begin, end; /* positions that are computed */
    int64_t span;       /* padding rows look so far; 0: there are none */
} oracle_slice;

static inline void oracle_put_rows(oracle *o, oracle_desc *d, const oracle_slice *t)
{
    dlab_desc_seq *q = oracle_add_seq(o, d, t->seq, t->end, t->span);
    oracle_check_segments(o, d, q, t->span);
    int32_t index = d->head.n_seqs - 1;
    for (int i = 0; i < 2 && t->span > 0; i++) {
        d->rows[d->head.n_rows++] =
            (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = (int32_t)t->span - 2 + i, .seq = index};
    }
    for (int64_t pos = t->begin; pos < t->end; pos++) {
        dlab_desc_row *r = &d->rows[d->head.n_rows++];
        *r = (dlab_desc_row){.pos = (int32_t)pos, .seq = index};
        o->c.ops->place(o->store, t->seq, pos, r);
        bool held = o->c.ops->retains && pos < o->seqs[t->seq].len;
        ORACLE_CHECK(o, (r->k_slot < 0) == held && (r->v_slot < 0) == held,
                     "position %lld of sequence %d: slots %lld, %lld", (long long)pos, t->seq, (long long)r->k_slot,
                     (long long)r->v_slot);
    }
    q->n_rows = d->head.n_rows - q->row_begin;
}

static inline void oracle_write_layer(oracle *o, oracle_desc *d, const oracle_slice *slices, int layer)
{
    static float k[ORACLE_ROWS][ORACLE_HEADS][ORACLE_DIM], v[ORACLE_ROWS][ORACLE_HEADS][ORACLE_DIM];
    for (int32_t r = 0; r < d->head.n_rows; r++) {
        const dlab_desc_row *row = &d->rows[r];
        const oracle_seq *m = &o->seqs[slices[row->seq].seq];
        for (int i = 0; i < ORACLE_HEADS * ORACLE_DIM; i++) {
            int head = i / ORACLE_DIM, e = i % ORACLE_DIM;
            bool writes = row->k_slot >= 0;
            k[r][head][e] = writes ? oracle_value(m->prefix[row->pos], layer, 0, head, e) : 77;
            v[r][head][e] = writes ? oracle_value(m->prefix[row->pos], layer, 1, head, e) : 77;
        }
    }
    dlab_error err = {0};
    dlab_kv_write_args a = {
        .k = {{k, sizeof k}, 0}, .v = {{v, sizeof v}, 0}, .desc = {{d, sizeof *d}, 0}, .n_rows = d->head.n_rows};
    o->c.ops->view(o->store, layer, &a.kv);
    ORACLE_CHECK(o, o->dev.base.ops->submit(&o->dev.base, DLAB_OP_kv_write, &a, &err) == DLAB_OK, "kv_write: %s",
                 err.msg);
    if (o->c.ops->retains) return;
    for (int32_t i = 0; i < d->head.n_seqs; i++) { /* a layer is seen while it is there */
        oracle_desc one = *d;
        one.seqs[0] = d->seqs[i];
        for (int64_t pos = 0; pos < slices[i].end; pos++)
            oracle_compare_vector(o, &one, &a.kv, slices[i].seq, pos, layer, (int)(pos % ORACLE_HEADS));
    }
}

static inline void oracle_step(oracle *o, const oracle_slice *slices, int n)
{
    static oracle_desc d;
    oracle_begin(&d);
    for (int i = 0; i < n; i++) oracle_put_rows(o, &d, &slices[i]);
    for (int layer = 0; layer < ORACLE_LAYERS; layer++) oracle_write_layer(o, &d, slices, layer);
    for (int i = 0; i < n; i++) {
        oracle_seq *m = &o->seqs[slices[i].seq];
        if (slices[i].end > m->len) m->len = slices[i].end;
        o->c.ops->commit(o->store, slices[i].seq, m->ids, m->len);
    }
}

/* Asks for room for the slice. A refusal must leave the sequence as it was, which the checks after it show. */
static inline bool oracle_extend(oracle *o, const oracle_slice *t)
{
    dlab_error err = {0};
    int64_t room = o->c.ops->room(o->store), block = o->c.block;
    dlab_status st = o->c.ops->extend(o->store, t->seq, t->end, t->span, &err);
    if (st == DLAB_OK) return true;
    ORACLE_CHECK(o, st == DLAB_EFULL, "extend: %s", err.msg);
    ORACLE_CHECK(o, o->c.tight, "a pool for all sequences is full: %s", err.msg);
    if (oracle_paged(o)) {
        ORACLE_CHECK(o, room < (t->end + block - 1) / block * block, "full with room for %lld tokens: %s",
                     (long long)room, err.msg);
    }
    o->seen.full++;
    return false;
}

/* A step of up to three sequences: prompts in chunks, single tokens, padding rows, last tokens computed again. */
static inline void oracle_write(oracle *o, int first)
{
    oracle_slice slices[3];
    int n = 0, asked = 1 + (int)oracle_draw(&o->dice, 3);
    for (int i = 0; i < ORACLE_SEQS && n < asked; i++) {
        int seq = (first + i) % ORACLE_SEQS;
        oracle_seq *m = &o->seqs[seq];
        if (!m->open || m->retired) continue;
        uint64_t kind = oracle_draw(&o->dice, 8);
        int64_t more = kind < 5 ? 1 : 1 + (int64_t)oracle_draw(&o->dice, 12), end = m->len + more;
        if (kind == 7 && m->len > 0 && o->c.ops->retains) end = m->len;
        if (end > ORACLE_TOKENS) end = ORACLE_TOKENS;
        while (m->n_known < end) oracle_append(m, oracle_next_id(o, m->n_known));
        oracle_slice t = {.seq = seq, .begin = o->c.ops->retains ? m->len : 0, .end = end};
        if (kind == 7 && t.begin > 0) t.begin--; /* for its logits only */
        if (kind == 6) t.span = 2 + (int64_t)oracle_draw(&o->dice, ORACLE_TOKENS - 1);
        if (oracle_extend(o, &t)) slices[n++] = t;
    }
    if (n > 0) oracle_step(o, slices, n);
}

static inline void oracle_rewind(oracle *o, int seq)
{
    oracle_seq *m = &o->seqs[seq];
    dlab_error err = {0};
    ORACLE_CHECK(o, o->c.ops->rewind(o->store, seq, &err) == DLAB_OK, "rewind: %s", err.msg);
    m->len = m->n_known = m->marked;
    m->retired = false;
}

/* Copied out, and its place given back (a marked one keeps what it had when it was marked). */
static inline void oracle_swap_out(oracle *o, int seq)
{
    oracle_seq *m = &o->seqs[seq];
    dlab_error err = {0};
    if (!o->c.ops->swap || m->retired || m->len == 0 || m->len == m->marked) return;
    const int64_t had = o->area.n_free;
    const dlab_status st = dlab_kv_swap_out(&o->area, o->store, seq, &o->images[seq], &err);
    if (st == DLAB_EFULL) {
        ORACLE_CHECK(o, o->area.n_free == had, "a refusal took pieces");
        o->seen.swaps_refused++;
        return;
    }
    ORACLE_CHECK(o, st == DLAB_OK, "swap out: %s", err.msg);
    ORACLE_CHECK(o, o->images[seq].live == m->len, "an image of %lld tokens", (long long)o->images[seq].live);
    if (m->marked < 0)
        o->c.ops->close(o->store, seq);
    else
        ORACLE_CHECK(o, o->c.ops->rewind(o->store, seq, &err) == DLAB_OK, "rewind: %s", err.msg);
    m->open = false;
    m->away = true;
}

static inline void oracle_swap_in(oracle *o, int seq)
{
    oracle_seq *m = &o->seqs[seq];
    dlab_error err = {0};
    int64_t cached = -1;
    dlab_status st = DLAB_OK;
    if (m->marked < 0) st = o->c.ops->open(o->store, seq, NULL, 0, &cached, &err);
    if (st == DLAB_OK) {
        st = o->c.ops->extend(o->store, seq, m->len, m->len, &err);
        if (st != DLAB_OK && m->marked < 0) o->c.ops->close(o->store, seq);
    }
    if (st == DLAB_EFULL && o->c.tight) {
        o->seen.full++;
        return;
    }
    ORACLE_CHECK(o, st == DLAB_OK, "a place to come back to: %s", err.msg);
    ORACLE_CHECK(o, dlab_kv_swap_in(&o->area, o->store, seq, &o->images[seq], &err) == DLAB_OK, "swap in: %s", err.msg);
    ORACLE_CHECK(o, o->images[seq].bytes == 0, "an image of what is back");
    m->open = true;
    m->away = false;
    o->seen.swaps++;
}

/* It never comes back. */
static inline void oracle_give_up(oracle *o, int seq)
{
    oracle_seq *m = &o->seqs[seq];
    dlab_kv_swap_drop(&o->area, &o->images[seq]);
    if (m->marked >= 0) o->c.ops->close(o->store, seq);
    m->away = false;
}

static inline void oracle_operate(oracle *o)
{
    int seq = (int)oracle_draw(&o->dice, ORACLE_SEQS), other = (int)oracle_draw(&o->dice, ORACLE_SEQS);
    oracle_seq *m = &o->seqs[seq];
    uint64_t what = oracle_draw(&o->dice, 100);
    dlab_error err = {0};
    o->n_ops++;
    if (m->away) {
        if (what < 97)
            oracle_swap_in(o, seq);
        else
            oracle_give_up(o, seq);
    } else if (!m->open) {
        oracle_open(o, seq);
    } else if (what < 58) {
        oracle_write(o, seq);
    } else if (what < 70) {
        if (!m->retired && !o->seqs[other].open && !o->seqs[other].away) oracle_fork(o, seq, other);
    } else if (what < 74) {
        oracle_swap_out(o, seq);
    } else if (what < 80) {
        o->c.ops->close(o->store, seq);
        m->open = false;
    } else if (what < 85 && !m->retired) {
        ORACLE_CHECK(o, o->c.ops->mark(o->store, seq, &err) == DLAB_OK, "mark: %s", err.msg);
        m->marked = m->len;
    } else if (what < 93 && m->marked >= 0) {
        oracle_rewind(o, seq);
    } else if (what < 95) {
        o->c.ops->retire(o->store, seq);
        m->retired = true;
    } else if (what < 99 && !m->retired) { /* a step that comes to nothing */
        oracle_slice t = {.seq = seq, .end = m->len + 1 + (int64_t)oracle_draw(&o->dice, ORACLE_TOKENS)};
        if (t.end <= ORACLE_TOKENS) oracle_extend(o, &t);
    } else if (what == 99 && oracle_draw(&o->dice, 8) == 0) {
        o->c.ops->reset(o->store);
    }
    oracle_check(o);
}

/* ---- life ---- */

static inline uint64_t oracle_same_hash(uint64_t prefix, const int32_t *ids, size_t n)
{
    (void)prefix;
    (void)ids;
    (void)n;
    return 42;
}

static inline dlab_kv_layout oracle_layout(const oracle *o, const char *what, const char *format, const char *scales,
                                           int64_t tail)
{
    dlab_kv_layout l;
    dlab_error err = {0};
    dlab_status st = dlab_kv_layout_make(what, dlab_kv_format_find(format), scales, o->c.block, tail, &l, &err);
    ORACLE_CHECK(o, st == DLAB_OK, "layout: %s", err.msg);
    return l;
}

static inline void oracle_create(oracle *o, const oracle_case *c, const oracle_dice *dice, const char *origin)
{
    dlab_error err = {0};
    memset(o, 0, sizeof *o);
    o->c = *c;
    o->dice = *dice;
    snprintf(o->name, sizeof o->name, "%s: %s, block %lld, k %s/%s, v %s%s%s%s%s", origin, c->ops->name,
             (long long)c->block, c->k, c->k_scales, c->v, c->tight ? ", tight" : "", c->grow ? ", double" : "",
             c->prefix_cache ? ", prefix cache" : "", c->same_hash ? ", same hash" : "");
    o->dev = kv_device_make(false);
    o->cfg = (dlab_kv_config){
        .dev = &o->dev.base,
        .k = oracle_layout(o, "kv.k", c->k, c->k_scales, c->k_tail),
        .v = oracle_layout(o, "kv.v", c->v, "token", c->v_tail),
        .n_layers = ORACLE_LAYERS,
        .n_kv_heads = ORACLE_HEADS,
        .head_dim = ORACLE_DIM,
        .max_seqs = ORACLE_SEQS,
        .max_tokens = ORACLE_TOKENS,
        .first_tokens = 8,
        .block_tokens = c->block,
        .prefix_cache = c->prefix_cache,
        .hash = c->same_hash ? oracle_same_hash : NULL,
    };
    if (c->tight) {
        int64_t tails = dlab_kv_tails_bytes(&o->cfg, c->ops->retains ? ORACLE_LAYERS : 1);
        o->cfg.pool_bytes = tails + (c->ops->bytes(&o->cfg) - tails) / 3;
    }
    o->cfg.grow = c->grow;
    ORACLE_CHECK(o, c->ops->create(&o->cfg, &o->store, &err) == DLAB_OK, "create: %s", err.msg);
    o->swap_dev = kv_device_make(false);
    const int64_t pieces = o->dev.bytes / ORACLE_PIECE / 6 + 1; /* a sixth: two or three sequences */
    ORACLE_CHECK(o, dlab_kv_swap_create(&o->swap_dev.base, ORACLE_PIECE, pieces, &o->area, &err) == DLAB_OK, "area: %s",
                 err.msg);
    if (oracle_paged(o)) {
        int64_t n = oracle_paged(o)->pool.n;
        ORACLE_CHECK(o, n <= ORACLE_POOL, "%lld blocks", (long long)n);
        for (int64_t b = 1; b <= n; b++) o->was_free[b] = true;
    }
    for (int t = 0; t < ORACLE_TEXTS; t++) {
        for (int i = 0; i < ORACLE_TOKENS; i++) o->texts[t][i] = i < 10 ? i : 10 * t + i; /* they begin alike */
    }
}

static inline void oracle_destroy(oracle *o)
{
    const char *wrong = kv_device_check(&o->dev);
    ORACLE_CHECK(o, !wrong, "%s", wrong);
    for (int i = 0; i < ORACLE_SEQS; i++) {
        if (o->seqs[i].away) oracle_swap_in(o, i);
        oracle_compare(o, i, true);
        if (o->seqs[i].away) oracle_give_up(o, i);
        if (o->seqs[i].open) o->c.ops->close(o->store, i);
        o->seqs[i].open = false;
    }
    ORACLE_CHECK(o, o->area.n_free == o->area.n, "%lld pieces of images are left behind",
                 (long long)(o->area.n - o->area.n_free));
    o->c.ops->reset(o->store);
    oracle_check(o);
    ORACLE_CHECK(o, o->seen.stats.reserved_bytes == 0 && o->seen.stats.cached_bytes == 0, "something is left behind");
    o->c.ops->destroy(o->store);
    ORACLE_CHECK(o, o->dev.n_bufs == 0, "%d buffers were not freed", o->dev.n_bufs);
    wrong = kv_device_check(&o->swap_dev);
    ORACLE_CHECK(o, !wrong, "swap area: %s", wrong);
    dlab_kv_swap_destroy(&o->area);
    ORACLE_CHECK(o, o->swap_dev.n_bufs == 0, "the swap area was not freed");
}

#endif
