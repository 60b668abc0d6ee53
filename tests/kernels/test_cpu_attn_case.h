/* Attention cases: sequences whose keys and values depend on a seed alone, laid out in a cache in many ways. */
#ifndef DLAB_TESTS_KERNELS_TEST_CPU_ATTN_CASE_H
#define DLAB_TESTS_KERNELS_TEST_CPU_ATTN_CASE_H

#include "test_cpu_lab.h"

typedef struct {
    int len, rows; /* the last `rows` of len tokens are the step's */
} attn_seq;

/* How K or V are stored. */
typedef struct {
    dlab_dtype dtype;
    dlab_kv_scales scales;
    int group; /* tokens that share a scale: BLOCK and CHANNEL; 0: 1 */
    int tail;  /* tokens of the ring; 0: none */
} attn_format;

typedef enum {
    SPANS_NONE,    /* no table */
    SPANS_WHOLE,   /* all tokens, by a table */
    SPANS_CUT,     /* all tokens, in several spans */
    SPANS_STRIDED, /* sinks, every fifth, a window */
    SPANS_LOCAL,   /* the last twenty, so that whole pieces are left out */
    SPANS_HEADS,   /* a stride and a window of its own for each KV head */
    SPANS_N
} attn_spans;

typedef struct {
    int heads, kv_heads, dim;
    attn_format k, v;
    attn_seq seqs[5]; /* ends at len 0 */
    int segment;      /* longest segment; 0: one for each sequence */
    bool token_major; /* where elements are the values: [T][G][d], else [G][T][d] within a segment */
    int max_len;      /* of the buffers; 0: the longest sequence */
    attn_spans spans;
} attn_case;

/* clang-format off */
#define FMT_F32                    {DLAB_F32, DLAB_SCALES_NONE, 0, 0}
#define FMT_F16                    {DLAB_F16, DLAB_SCALES_NONE, 0, 0}
#define FMT_BF16                   {DLAB_BF16, DLAB_SCALES_NONE, 0, 0}
#define FMT_TOKEN(t, cap)          {DLAB_##t, DLAB_SCALES_TOKEN, 0, cap}
#define FMT_STEP(t)                {DLAB_##t, DLAB_SCALES_STEP, 0, 0}
#define FMT_BLOCK(t, group, cap)   {DLAB_##t, DLAB_SCALES_BLOCK, group, cap}
#define FMT_CHANNEL(t, group, cap) {DLAB_##t, DLAB_SCALES_CHANNEL, group, cap}
/* clang-format on */

static const attn_case attn_cases[] = {
    {9, 3, 64, FMT_F32, FMT_F32, {{1, 1}}, 0, false, 0, SPANS_NONE},
    {9, 3, 64, FMT_F16, FMT_F16, {{255, 1}, {256, 1}, {257, 1}, {600, 1}}, 0, false, 1000, SPANS_NONE},
    {4, 4, 80, FMT_BF16, FMT_F32, {{33, 33}}, 0, true, 0, SPANS_NONE},
    {8, 1, 64, FMT_F32, FMT_BF16, {{270, 20}, {5, 1}, {12, 12}}, 0, false, 0, SPANS_NONE},
    {6, 2, 20, FMT_F16, FMT_BF16, {{300, 50}, {1, 1}, {257, 2}}, 16, true, 0, SPANS_NONE},
    {9, 3, 64, FMT_F16, FMT_F16, {{600, 7}, {256, 3}}, 37, false, 0, SPANS_STRIDED},
    {40, 1, 33, FMT_BF16, FMT_F16, {{70, 9}}, 1, true, 0, SPANS_NONE},
    {2, 2, 128, FMT_F32, FMT_F16, {{513, 3}, {512, 1}}, 100, false, 0, SPANS_LOCAL},
    {6, 2, 64, FMT_TOKEN(U8, 0), FMT_TOKEN(U4, 0), {{530, 70}, {257, 1}}, 8, false, 0, SPANS_HEADS},
    {3, 1, 80, FMT_TOKEN(U4, 33), FMT_TOKEN(E4M3, 20), {{300, 5}, {20, 3}, {34, 34}}, 24, false, 0, SPANS_NONE},
    {9, 3, 64, FMT_CHANNEL(U8, 8, 16), FMT_BLOCK(U8, 8, 8), {{290, 9}, {6, 1}, {272, 1}}, 24, false, 0, SPANS_STRIDED},
    {4, 2, 16, FMT_STEP(U8), FMT_STEP(E5M2), {{256, 66}}, 16, false, 0, SPANS_CUT},
};
#define N_ATTN_CASES ((int)(sizeof attn_cases / sizeof attn_cases[0]))

/* Where things lie: the descriptor, and which of the step's rows are kept. */
typedef struct {
    dlab_at desc, q;
    dlab_kv_view kv;
    dlab_span_table spans;
    int n_rows, max_len, first_row;
    int *row_visited; /* tokens, of [row · KV heads + head] */
} attn_setup;

static inline int attn_n_seqs(const attn_case *c)
{
    int n = 0;
    while (n < 5 && c->seqs[n].len > 0) n++;
    return n;
}

static inline int attn_group_of(const attn_format *f) { return f->group > 0 ? f->group : 1; }

/* Tokens of the segment that begins at `at`: of varying length, whole groups, never longer than asked. */
static inline int attn_segment_len(const attn_case *c, int at, int len)
{
    if (c->segment == 0) return len - at;
    const int k = attn_group_of(&c->k), v = attn_group_of(&c->v), group = k > v ? k : v, most = c->segment / group;
    int n = c->segment <= 16 ? c->segment : group * (1 + (at * 7 + 13) % most);
    if (c->segment <= 16 && n % group) n = group;
    return n < len - at ? n : len - at;
}

static inline int attn_n_segs(const attn_case *c)
{
    int n = 0;
    for (int s = 0; s < attn_n_seqs(c); s++)
        for (int t = 0; t < c->seqs[s].len; n++) t += attn_segment_len(c, t, c->seqs[s].len);
    return n;
}

/* Of a sequence of len tokens, how many are in regions: whole groups, and at most a ring's tokens are not. */
static inline int attn_sealed(const attn_format *f, int len)
{
    const int group = attn_group_of(f), keep = f->tail - group;
    if (f->tail == 0) return len;
    return len > keep ? (len - keep) / group * group : 0;
}

/* ---- spans ---- */

static inline int add_span(dlab_span *out, int n, int begin, int end, int step)
{
    if (begin >= end) return n;
    out[n] = (dlab_span){begin, (end - begin + step - 1) / step, step};
    return n + 1;
}

/* Sinks, every step-th of what lies between, and the last `window` positions of 0 … pos. */
static inline int strided_spans(dlab_span *out, int pos, int sinks, int step, int window)
{
    const int edge = pos + 1 > window ? pos + 1 - window : 0, first = sinks < edge ? sinks : edge;
    int n = add_span(out, 0, 0, first, 1);
    n = add_span(out, n, (first + step - 1) / step * step, edge, step);
    return add_span(out, n, edge, pos + 1, 1);
}

static inline int attn_row_spans(attn_spans kind, int pos, int head, dlab_span *out)
{
    switch (kind) {
    case SPANS_STRIDED:
        return strided_spans(out, pos, 4, 5, 37);
    case SPANS_LOCAL:
        return add_span(out, 0, pos > 20 ? pos - 20 : 0, pos + 1, 1);
    case SPANS_HEADS:
        return strided_spans(out, pos, 2 * head, 300 * head + 2, 9 * head + 1);
    case SPANS_CUT: {
        int n = add_span(out, 0, 0, pos / 3, 1);
        n = add_span(out, n, pos / 3, pos / 2, 1);
        return add_span(out, n, pos / 2, pos + 1, 1);
    }
    default:
        return add_span(out, 0, 0, pos + 1, 1);
    }
}

static inline void attn_put_spans(lab *l, const attn_case *c, const dlab_desc_head *d, attn_setup *u)
{
    const int heads = c->spans == SPANS_HEADS ? c->kv_heads : 1, lists = u->n_rows * heads;
    int32_t *first = calloc((size_t)(lists + 1) + 9 * (size_t)lists, sizeof *first);
    dlab_span *spans = (dlab_span *)(void *)(first + lists + 1);
    for (int r = 0; r < u->n_rows; r++) {
        for (int h = 0; h < c->kv_heads; h++) {
            const int list = r * heads + h;
            dlab_span *own = spans + first[h < heads ? list : r];
            const int n = attn_row_spans(c->spans, dlab_desc_rows(d)[r].pos, h, own);
            for (int i = 0; i < n; i++) u->row_visited[r * c->kv_heads + h] += own[i].count;
            if (h < heads) first[list + 1] = first[list] + n;
        }
    }
    if (c->spans != SPANS_NONE)
        u->spans =
            (dlab_span_table){lab_put(l, first, (size_t)(lists + 1) * 4 + (size_t)first[lists] * sizeof *spans), heads};
    free(first);
}

/* ---- one plane ---- */

typedef struct {
    dlab_kv_plane p;
    char *region, *tail;
    size_t bytes, tail_bytes;
    int64_t vector, apart; /* bytes of a token's elements; tokens that a region has room for */
    int scales;            /* of a vector, or of a group's */
    bool token_major;
} attn_plane;

static inline attn_plane attn_new_plane(const attn_case *c, const attn_format *f, int longest, int segs, int tokens)
{
    attn_plane a = {.vector = (int64_t)dlab_dtype_bytes(f->dtype, c->dim), .scales = 1};
    const int group = attn_group_of(f);
    a.apart = ((c->segment ? c->segment : longest) + group - 1) / group * group;
    if (f->dtype == DLAB_U4) a.scales = (c->dim + 31) / 32;
    if (f->scales == DLAB_SCALES_CHANNEL) a.scales = c->dim;
    a.p = (dlab_kv_plane){.dtype = f->dtype, .scales = f->scales, .group = group, .token_stride = a.vector};
    a.p.meta_off = (a.vector * a.apart + 3) / 4 * 4;
    a.p.head_stride = a.p.meta_off + (f->scales == DLAB_SCALES_NONE ? 0 : 4 * a.scales * (a.apart / group));
    a.bytes = (size_t)segs * ((size_t)a.p.head_stride * (size_t)c->kv_heads + 64);
    a.token_major = c->token_major && f->scales == DLAB_SCALES_NONE;
    if (a.token_major) {
        a.p.head_stride = a.vector;
        a.p.token_stride = a.vector * c->kv_heads;
        a.bytes = (size_t)tokens * (size_t)a.p.token_stride + 64 * (size_t)segs;
    }
    a.region = malloc(a.bytes + 1);
    ck_assert_ptr_nonnull(a.region);
    memset(a.region, 0xff, a.bytes);
    a.p.tail_cap = f->tail;
    a.p.tail_head_stride = f->tail * c->dim * 2 + 32;
    a.p.tail_seq_stride = a.p.tail_head_stride * c->kv_heads + 32;
    a.tail_bytes = f->tail ? (size_t)a.p.tail_seq_stride * 7 : 0;
    a.tail = malloc(a.tail_bytes + 1);
    ck_assert_ptr_nonnull(a.tail);
    memset(a.tail, 0xff, a.tail_bytes);
    return a;
}

/* A scale with its zero point, so that values spread about as one standard deviation. */
static inline uint32_t random_word(dlab_rng *r, dlab_dtype t)
{
    const double spread = t == DLAB_U8 ? 255 : t == DLAB_U4 ? 15 : 200;
    const float scale = (float)((1 + dlab_rng_unit(r)) * 2.3 / spread);
    uint32_t word;
    memcpy(&word, &scale, sizeof word);
    word &= ~255u;
    if (t == DLAB_U8) word |= (uint32_t)dlab_rng_below(r, 256);
    if (t == DLAB_U4) word |= (uint32_t)dlab_rng_below(r, 16);
    return word;
}

static inline void random_vector(dlab_rng *r, dlab_dtype t, int dim, char *out)
{
    for (int j = 0; j < dim; j++) {
        const float x = random_float(r, 1);
        const uint8_t code = (uint8_t)dlab_rng_below(r, 256);
        if (t == DLAB_U8)
            out[j] = (char)code;
        else if (t == DLAB_E4M3)
            out[j] = (char)dlab_f32_to_e4m3(x * 120);
        else if (t == DLAB_E5M2)
            out[j] = (char)dlab_f32_to_e5m2(x * 120);
        else if (t == DLAB_U4)
            out[j / 32 * 16 + j % 16] = (char)code;
        else
            put_wide(out, t, (size_t)j, x);
    }
}

/* Fills a sequence: what a token holds depends on the sequence and the token alone, not on where it lies. */
static inline void attn_fill_seq(const attn_case *c, attn_plane *a, int s, const dlab_desc_seg *segs, bool keys,
                                 int sealed, int tail_slot)
{
    dlab_rng r;
    char *none = malloc((size_t)a->vector + 4 * (size_t)c->dim);
    dlab_rng_seed(&r, (uint64_t)(2 * s + keys) + 77);
    const int len = c->seqs[s].len, group = a->p.group;
    for (int g = 0; g < c->kv_heads; g++) {
        const dlab_desc_seg *seg = segs;
        for (int t = 0; t < len; t++) {
            while (t >= seg->tok_begin + seg->n_tok) seg++;
            const int index = t - seg->tok_begin;
            char *head = a->region + (keys ? seg->k_off : seg->v_off) + g * a->p.head_stride;
            random_vector(&r, a->p.dtype, c->dim, t < sealed ? head + index * a->p.token_stride : none);
            for (int i = 0; i < a->scales && a->p.scales != DLAB_SCALES_NONE && t % group == 0; i++) {
                const uint32_t word = random_word(&r, a->p.dtype);
                const size_t at = (size_t)(index / group * a->scales + i) * 4;
                if (t < sealed) memcpy(head + a->p.meta_off + at, &word, sizeof word);
            }
            for (int j = 0; j < c->dim && t >= sealed; j++) {
                char *ring = a->tail + tail_slot * a->p.tail_seq_stride + g * a->p.tail_head_stride;
                put_wide(ring, DLAB_F16, (size_t)(t % a->p.tail_cap) * (size_t)c->dim + (size_t)j, random_float(&r, 1));
            }
        }
    }
    free(none);
}

/* Segments lie in the cache in reverse order with unused memory between them, which holds NaN. */
static inline void attn_fill_cache(const attn_case *c, dlab_desc_head *d, attn_plane *k, attn_plane *v)
{
    int64_t k_end = (int64_t)k->bytes, v_end = (int64_t)v->bytes;
    int seg = 0;
    for (int s = 0; s < attn_n_seqs(c); s++) {
        const int len = c->seqs[s].len, k_sealed = attn_sealed(&c->k, len), v_sealed = attn_sealed(&c->v, len);
        *desc_seq(d, s) = (dlab_desc_seq){.seg_begin = seg, .len = len, .tail_slot = (s * 3 + 1) % 7};
        desc_seq(d, s)->k_sealed_from = desc_seq(d, s)->k_sealed = k_sealed;
        desc_seq(d, s)->v_sealed_from = desc_seq(d, s)->v_sealed = v_sealed;
        for (int t = 0; t < len; seg++) {
            const int n = attn_segment_len(c, t, len);
            k_end -= (k->token_major ? n * k->p.token_stride : k->p.head_stride * c->kv_heads) + 64;
            v_end -= (v->token_major ? n * v->p.token_stride : v->p.head_stride * c->kv_heads) + 64;
            ck_assert_int_ge(k_end, 0);
            ck_assert_int_ge(v_end, 0);
            *desc_seg(d, seg) = (dlab_desc_seg){k_end, v_end, t, n};
            t += n;
        }
        desc_seq(d, s)->n_segs = seg - desc_seq(d, s)->seg_begin;
        attn_fill_seq(c, k, s, desc_seg(d, desc_seq(d, s)->seg_begin), true, k_sealed, desc_seq(d, s)->tail_slot);
        attn_fill_seq(c, v, s, desc_seg(d, desc_seq(d, s)->seg_begin), false, v_sealed, desc_seq(d, s)->tail_slot);
    }
}

/* Rows of the step; with only ≥ 0 that row alone. */
static inline void attn_fill_rows(const attn_case *c, dlab_desc_head *d, int only)
{
    int row = 0, kept = 0;
    for (int s = 0; s < attn_n_seqs(c); s++) {
        desc_seq(d, s)->row_begin = kept;
        for (int i = 0; i < c->seqs[s].rows; i++, row++) {
            if (only >= 0 && row != only) continue;
            const int pos = c->seqs[s].len - c->seqs[s].rows + i;
            *desc_row(d, kept++) = (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = pos, .seq = s};
        }
        desc_seq(d, s)->n_rows = kept - desc_seq(d, s)->row_begin;
    }
}

/* The plane in buffers of the device; the host's copy is gone. */
static inline dlab_kv_plane attn_put_plane(lab *l, attn_plane *a)
{
    char *region = a->region, *tail = a->tail;
    a->p.base = lab_put(l, region, a->bytes);
    a->p.bytes = a->bytes;
    if (a->tail_bytes) a->p.tail = lab_put(l, tail, a->tail_bytes);
    a->p.tail_bytes = a->tail_bytes;
    free(region);
    free(tail);
    return a->p;
}

static inline attn_setup attn_setup_case(lab *l, const attn_case *c, int only)
{
    attn_setup u = {.max_len = c->max_len, .first_row = only < 0 ? 0 : only};
    int rows = 0, longest = 0, tokens = 0;
    for (int s = 0; s < attn_n_seqs(c); s++) {
        rows += c->seqs[s].rows;
        tokens += c->seqs[s].len;
        if (c->seqs[s].len > longest) longest = c->seqs[s].len;
    }
    if (u.max_len == 0) u.max_len = longest;
    u.n_rows = only < 0 ? rows : 1;
    u.row_visited = calloc((size_t)rows * (size_t)c->kv_heads + 1, sizeof(int));
    const int segs = attn_n_segs(c);
    size_t desc_bytes;
    dlab_desc_head *d = new_desc(u.n_rows, attn_n_seqs(c), segs, 0, &desc_bytes);
    attn_plane k = attn_new_plane(c, &c->k, longest, segs, tokens), v = attn_new_plane(c, &c->v, longest, segs, tokens);
    attn_fill_cache(c, d, &k, &v);
    attn_fill_rows(c, d, only);
    attn_put_spans(l, c, d, &u);
    dlab_rng r;
    dlab_rng_seed(&r, 5);
    const size_t width = (size_t)c->heads * (size_t)c->dim;
    float *q = random_floats(&r, (size_t)rows * width, 1);
    u.q = lab_put(l, q + (size_t)u.first_row * width, (size_t)u.n_rows * width * sizeof(float));
    u.kv.k = attn_put_plane(l, &k);
    u.kv.v = attn_put_plane(l, &v);
    u.kv.n_kv_heads = c->kv_heads;
    u.kv.head_dim = c->dim;
    u.desc = lab_put(l, d, desc_bytes);
    free(q);
    free(d);
    return u;
}

static inline float attn_scale(const attn_case *c) { return 1.0f / sqrtf((float)c->dim); }

/* out [rows, H, d] of the whole step, or of one of its rows. */
static inline outcome attn_fused_outcome(lab *l, const attn_case *c, int only)
{
    attn_setup u = attn_setup_case(l, c, only);
    const size_t n = (size_t)u.n_rows * (size_t)c->heads,
                 pieces = (size_t)(u.max_len + DLAB_ATTN_PIECE - 1) / DLAB_ATTN_PIECE;
    dlab_attn_fused_args a = {.q = u.q, .desc = u.desc, .kv = u.kv, .spans = u.spans, .n_rows = u.n_rows};
    a.n_heads = c->heads;
    a.out = lab_put(l, NULL, n * (size_t)c->dim * sizeof(float));
    /* partials of another step, of which nothing may be left */
    float *old = malloc((n * pieces * (size_t)(c->dim + 2) + 1) * sizeof *old);
    ck_assert_ptr_nonnull(old);
    for (size_t i = 0; i < n * pieces * (size_t)(c->dim + 2); i++) old[i] = 7;
    a.partials = lab_put(l, old, n * pieces * (size_t)(c->dim + 2) * sizeof *old);
    free(old);
    a.max_len = u.max_len;
    a.scale = attn_scale(c);
    const dlab_at out = a.out;
    lab_submit(l, DLAB_OP_attn_fused, &a);
    outcome o = floats_outcome(l, out, n * (size_t)c->dim, 2e-5, 1);
    free(u.row_visited);
    lab_clear(l);
    return o;
}

/* One of the three ops with fresh random scores; or, with op = DLAB_OP_N, all three in a row. */
static inline outcome attn_unfused_outcome(lab *l, const attn_case *c, dlab_op op, int only)
{
    attn_setup u = attn_setup_case(l, c, only);
    const size_t n = (size_t)u.n_rows * (size_t)c->heads, n_scores = n * (size_t)u.max_len;
    const size_t n_out = n * (size_t)c->dim, rows = (size_t)u.n_rows;
    dlab_rng r;
    dlab_rng_seed(&r, 9);
    float *scores = random_floats(&r, n_scores, 3);
    const dlab_at out = lab_put(l, NULL, n_out * sizeof(float)), s = lab_put(l, scores, n_scores * sizeof(float));
    for (dlab_op i = DLAB_OP_attn_scores; i <= DLAB_OP_attn_values; i++) {
        if (op != DLAB_OP_N && op != i) continue;
        dlab_attn_unfused_args a = {u.q, out, u.desc, s, u.kv, u.spans, u.n_rows, c->heads, u.max_len, attn_scale(c)};
        lab_submit(l, i, &a);
    }
    outcome o;
    if (op == DLAB_OP_attn_values || op == DLAB_OP_N) {
        /* raw random scores do not add up to 1: sums walk far from 0 on their way */
        o = floats_outcome(l, out, n_out, 2e-5, op == DLAB_OP_N ? 1 : 40);
    } else {
        o = floats_outcome(l, s, n_scores, 2e-5, op == DLAB_OP_attn_scores ? 1 : 1e-20);
        for (size_t i = 0; i < n_scores; i++) {
            const size_t row = i / (size_t)u.max_len % rows, token = i % (size_t)u.max_len;
            const size_t head = i / (size_t)u.max_len / rows / (size_t)(c->heads / c->kv_heads);
            if (token >= (size_t)u.row_visited[row * (size_t)c->kv_heads + head]) o.allow[i] = 0;
        }
    }
    free(scores);
    free(u.row_visited);
    lab_clear(l);
    return o;
}

#endif
