/* Attention cases: sequences whose keys and values depend on a seed alone, laid out in a cache in many ways. */
#ifndef DLAB_TESTS_KERNELS_TEST_CPU_ATTN_CASE_H
#define DLAB_TESTS_KERNELS_TEST_CPU_ATTN_CASE_H

#include "test_cpu_lab.h"

typedef struct {
    int len, rows; /* the last `rows` of len tokens are the step's */
} attn_seq;

typedef struct {
    int heads, kv_heads, dim;
    dlab_dtype k, v;
    attn_seq seqs[5]; /* ends at len 0 */
    int segment;      /* longest segment; 0: one for each sequence */
    bool token_major; /* [T][G][d], else [G][T][d] within a segment */
    int max_len;      /* of the buffers; 0: the longest sequence */
} attn_case;

static const attn_case attn_cases[] = {
    {9, 3, 64, DLAB_F32, DLAB_F32, {{1, 1}}, 0, false, 0},
    {9, 3, 64, DLAB_F16, DLAB_F16, {{255, 1}, {256, 1}, {257, 1}, {600, 1}}, 0, false, 1000},
    {4, 4, 80, DLAB_BF16, DLAB_F32, {{33, 33}}, 0, true, 0},
    {8, 1, 64, DLAB_F32, DLAB_BF16, {{270, 20}, {5, 1}, {12, 12}}, 0, false, 0},
    {6, 2, 20, DLAB_F16, DLAB_BF16, {{300, 50}, {1, 1}, {257, 2}}, 16, true, 0},
    {9, 3, 64, DLAB_F16, DLAB_F16, {{600, 7}, {256, 3}}, 37, false, 0},
    {40, 1, 33, DLAB_BF16, DLAB_F16, {{70, 9}}, 1, true, 0},
    {2, 2, 128, DLAB_F32, DLAB_F16, {{513, 3}, {512, 1}}, 100, false, 0},
};
#define N_ATTN_CASES ((int)(sizeof attn_cases / sizeof attn_cases[0]))

/* Where things lie: the descriptor, and which of the step's rows are kept. */
typedef struct {
    dlab_at desc, q;
    dlab_kv_view kv;
    int n_rows, max_len, first_row;
    int *row_visible;
} attn_setup;

static inline int attn_n_seqs(const attn_case *c)
{
    int n = 0;
    while (n < 5 && c->seqs[n].len > 0) n++;
    return n;
}

/* Tokens of the segment that begins at `at`: of varying length, never longer than asked. */
static inline int attn_segment_len(const attn_case *c, int at, int len)
{
    if (c->segment == 0) return len - at;
    const int n = c->segment <= 16 ? c->segment : 1 + (at * 7 + 13) % c->segment;
    return n < len - at ? n : len - at;
}

static inline int attn_n_segs(const attn_case *c)
{
    int n = 0;
    for (int s = 0; s < attn_n_seqs(c); s++)
        for (int t = 0; t < c->seqs[s].len; n++) t += attn_segment_len(c, t, c->seqs[s].len);
    return n;
}

/* Segments lie in the cache in reverse order with unused memory between them, which holds NaN. */
static inline void attn_fill_cache(const attn_case *c, dlab_desc_head *d, dlab_kv_view *kv, char *k, char *v,
                                   size_t k_bytes, size_t v_bytes)
{
    const int64_t ke = dlab_dtype_block_bytes(c->k), ve = dlab_dtype_block_bytes(c->v);
    int64_t k_end = (int64_t)k_bytes, v_end = (int64_t)v_bytes;
    memset(k, 0xff, k_bytes);
    memset(v, 0xff, v_bytes);
    int seg = 0;
    dlab_rng r;
    for (int s = 0; s < attn_n_seqs(c); s++) {
        *desc_seq(d, s) = (dlab_desc_seq){.seg_begin = seg, .len = c->seqs[s].len};
        dlab_rng_seed(&r, (uint64_t)s + 77);
        for (int t = 0; t < c->seqs[s].len; seg++) {
            const int n = attn_segment_len(c, t, c->seqs[s].len);
            k_end -= kv->k_head_stride * (c->token_major ? n : c->kv_heads) * (c->token_major ? c->kv_heads : 1) + 64;
            v_end -= kv->v_head_stride * (c->token_major ? n : c->kv_heads) * (c->token_major ? c->kv_heads : 1) + 64;
            ck_assert_int_ge(k_end, 0);
            ck_assert_int_ge(v_end, 0);
            *desc_seg(d, seg) = (dlab_desc_seg){k_end, v_end, t, n};
            for (int i = 0; i < n; i++)
                for (int g = 0; g < c->kv_heads; g++)
                    for (int j = 0; j < c->dim; j++) {
                        const int64_t ka = k_end + g * kv->k_head_stride + i * kv->k_token_stride;
                        const int64_t va = v_end + g * kv->v_head_stride + i * kv->v_token_stride;
                        put_wide(k + ka + j * ke, c->k, 0, random_float(&r, 1));
                        put_wide(v + va + j * ve, c->v, 0, random_float(&r, 1));
                    }
            t += n;
        }
        desc_seq(d, s)->n_segs = seg - desc_seq(d, s)->seg_begin;
    }
}

/* Rows of the step; with only ≥ 0 that row alone. */
static inline void attn_fill_rows(const attn_case *c, dlab_desc_head *d, int only, attn_setup *u)
{
    int row = 0, kept = 0;
    for (int s = 0; s < attn_n_seqs(c); s++) {
        desc_seq(d, s)->row_begin = kept;
        for (int i = 0; i < c->seqs[s].rows; i++, row++) {
            if (only >= 0 && row != only) continue;
            const int pos = c->seqs[s].len - c->seqs[s].rows + i;
            *desc_row(d, kept) = (dlab_desc_row){.k_slot = -1, .v_slot = -1, .pos = pos, .seq = s};
            u->row_visible[kept++] = pos + 1;
        }
        desc_seq(d, s)->n_rows = kept - desc_seq(d, s)->row_begin;
    }
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
    u.row_visible = calloc((size_t)rows + 1, sizeof(int));
    const int segs = attn_n_segs(c);
    const int64_t ke = dlab_dtype_block_bytes(c->k) * c->dim, ve = dlab_dtype_block_bytes(c->v) * c->dim;
    const int64_t apart = c->segment ? c->segment : longest;
    u.kv = (dlab_kv_view){.k_dtype = c->k, .v_dtype = c->v, .n_kv_heads = c->kv_heads, .head_dim = c->dim};
    u.kv.k_head_stride = c->token_major ? ke : ke * apart;
    u.kv.v_head_stride = c->token_major ? ve : ve * apart;
    u.kv.k_token_stride = c->token_major ? ke * c->kv_heads : ke;
    u.kv.v_token_stride = c->token_major ? ve * c->kv_heads : ve;
    const size_t room = (size_t)(c->token_major ? tokens : segs * apart) * (size_t)c->kv_heads;
    const size_t k_bytes = room * (size_t)ke + 64 * (size_t)(segs + 1);
    const size_t v_bytes = room * (size_t)ve + 64 * (size_t)(segs + 1);
    size_t desc_bytes;
    dlab_desc_head *d = new_desc(u.n_rows, attn_n_seqs(c), segs, 0, &desc_bytes);
    char *k = malloc(k_bytes), *v = malloc(v_bytes);
    attn_fill_cache(c, d, &u.kv, k, v, k_bytes, v_bytes);
    attn_fill_rows(c, d, only, &u);
    dlab_rng r;
    dlab_rng_seed(&r, 5);
    const size_t width = (size_t)c->heads * (size_t)c->dim;
    float *q = random_floats(&r, (size_t)rows * width, 1);
    u.q = lab_put(l, q + (size_t)u.first_row * width, (size_t)u.n_rows * width * sizeof(float));
    u.kv.k = lab_put(l, k, k_bytes);
    u.kv.v = lab_put(l, v, v_bytes);
    u.desc = lab_put(l, d, desc_bytes);
    free(q);
    free(k);
    free(v);
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
    dlab_attn_fused_args a = {.q = u.q, .desc = u.desc, .kv = u.kv, .n_rows = u.n_rows, .n_heads = c->heads};
    a.out = lab_put(l, NULL, n * (size_t)c->dim * sizeof(float));
    a.partials = lab_put(l, NULL, n * pieces * (size_t)(c->dim + 2) * sizeof(float));
    a.max_len = u.max_len;
    a.scale = attn_scale(c);
    const dlab_at out = a.out;
    lab_submit(l, DLAB_OP_attn_fused, &a);
    outcome o = floats_outcome(l, out, n * (size_t)c->dim, 2e-5, 1);
    free(u.row_visible);
    lab_clear(l);
    return o;
}

/* One of the three ops with fresh random scores; or, with op = DLAB_OP_N, all three in a row. */
static inline outcome attn_unfused_outcome(lab *l, const attn_case *c, dlab_op op, int only)
{
    attn_setup u = attn_setup_case(l, c, only);
    const size_t n = (size_t)u.n_rows * (size_t)c->heads, n_scores = n * (size_t)u.max_len;
    const size_t n_out = n * (size_t)c->dim;
    dlab_rng r;
    dlab_rng_seed(&r, 9);
    float *scores = random_floats(&r, n_scores, 3);
    const dlab_at out = lab_put(l, NULL, n_out * sizeof(float)), s = lab_put(l, scores, n_scores * sizeof(float));
    for (dlab_op i = DLAB_OP_attn_scores; i <= DLAB_OP_attn_values; i++) {
        if (op != DLAB_OP_N && op != i) continue;
        dlab_attn_unfused_args a = {u.q, out, u.desc, s, u.kv, u.n_rows, c->heads, u.max_len, attn_scale(c)};
        lab_submit(l, i, &a);
    }
    outcome o;
    if (op == DLAB_OP_attn_values || op == DLAB_OP_N) {
        /* raw random scores do not add up to 1: sums walk far from 0 on their way */
        o = floats_outcome(l, out, n_out, 2e-5, op == DLAB_OP_N ? 1 : 20);
    } else {
        o = floats_outcome(l, s, n_scores, 2e-5, op == DLAB_OP_attn_scores ? 1 : 1e-20);
        for (size_t i = 0; i < n_scores; i++) {
            const size_t row = i / (size_t)u.max_len % (size_t)u.n_rows, token = i % (size_t)u.max_len;
            if (token >= (size_t)u.row_visible[row]) o.allow[i] = 0;
        }
    }
    free(scores);
    free(u.row_visible);
    lab_clear(l);
    return o;
}

#endif
