/* Products of queries with the keys of a list, sums of its values, and exponentials between them. */
#ifndef DLAB_KERNELS_CPU_ATTN_MATH_H
#define DLAB_KERNELS_CPU_ATTN_MATH_H

#include "kernels/cpu/attn_list.h"

/* How scores come from products. */
typedef enum {
    SCORE_PLAIN,  /* · factor */
    SCORE_SCALED, /* · scale + shift · Σq, both of the token */
    SCORE_SHIFTED /* (… + shift of the query) · factor */
} score_kind;

/* A query with its scores: of the list's tokens in order, with room for VF − 1 more. */
typedef struct {
    const float *q;
    float *scores;
    float sum;   /* Σq */
    float shift; /* SCORE_SHIFTED */
} attn_query;

/* A list, a part of it, and how it is to be read. */
typedef struct {
    const attn_list *l;
    int64_t begin, end, dim;
    float factor;
    bool fetch; /* asks for what comes: once a list, not for each group of queries */
} attn_part;

/* Asks for token t's elements. */
DLAB_INLINE void fetch_token(const attn_list *l, int64_t t)
{
    for (int64_t i = 0; i < l->bytes; i += 64) __builtin_prefetch(l->at[t] + i);
}

DLAB_INLINE vf load_token(const attn_list *l, int64_t t, int64_t i, const dlab_dtype type)
{
    if (type != DLAB_U4) return vf_load_as(l->at[t], i, type);
    const int64_t block = t * l->blocks + i / 32;
    const uint8_t *bytes = (const uint8_t *)l->at[t] + i / 32 * 16 + i % 16;
    return vf_load_nibbles_of(bytes, i % 32 >= 16, l->scale[block], l->shift[block]);
}

/* Vectors that are read together: of U4 a block. */
#define TOGETHER(type) ((type) == DLAB_U4 ? 32 / VF : 1)

/* n vectors from element i on, whole blocks if n is. */
DLAB_INLINE void load_together(const attn_list *l, int64_t t, int64_t i, const int n, const dlab_dtype type, vf *out)
{
    if (n % (32 / VF) == 0 && type == DLAB_U4) {
        DLAB_UNROLL
        for (int j = 0; j < n; j += 32 / VF) {
            const int64_t block = (i + j * VF) / 32, at = t * l->blocks + block;
            const uint8_t *bytes = (const uint8_t *)l->at[t] + block * 16;
            vf_load_nibble_block(bytes, l->scale[at], l->shift[at], out + j);
        }
        return;
    }
    DLAB_UNROLL
    for (int j = 0; j < n; j++) out[j] = load_token(l, t, i + j * VF, type);
}

/* The first n < VF lanes of what begins at element i. */
DLAB_INLINE vf load_token_n(const attn_list *l, int64_t t, int64_t i, int64_t n, const dlab_dtype type)
{
    if (type == DLAB_U4) return load_token(l, t, i, type); /* blocks are whole */
    return vf_load_n_as(l->at[t], i, n, type);
}

/* ---- scores ---- */

/* part[r] = what vf_fold4 makes of the products of rows queries with four tokens: t, … but none behind `last`. */
DLAB_INLINE void dot_tokens(const attn_query *query, const int rows, const attn_part *p, int64_t t,
                            const dlab_dtype type, vf (*part)[VF / 4], int64_t column)
{
    vf sum[SCORE_QUERIES][4];
    int64_t token[4];
    DLAB_UNROLL
    for (int c = 0; c < 4; c++) token[c] = dlab_min_i64(t + c, p->end - 1);
    DLAB_UNROLL
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++) sum[r][c] = vf_set1(0);
    int64_t i = 0;
    for (; i + TOGETHER(type) * VF <= p->dim; i += TOGETHER(type) * VF) {
        DLAB_UNROLL
        for (int c = 0; c < 4; c++) {
            vf u[TOGETHER(DLAB_U4)];
            load_together(p->l, token[c], i, TOGETHER(type), type, u);
            for (int j = 0; j < TOGETHER(type); j++) {
                DLAB_UNROLL
                for (int r = 0; r < rows; r++) sum[r][c] = vf_fma(vf_load(query[r].q + i + j * VF), u[j], sum[r][c]);
            }
        }
    }
    for (; type == DLAB_U4 && i + VF <= p->dim; i += VF) { /* a part of a block */
        DLAB_UNROLL
        for (int c = 0; c < 4; c++) {
            const vf u = load_token(p->l, token[c], i, type);
            DLAB_UNROLL
            for (int r = 0; r < rows; r++) sum[r][c] = vf_fma(vf_load(query[r].q + i), u, sum[r][c]);
        }
    }
    if (i < p->dim) {
        DLAB_UNROLL
        for (int c = 0; c < 4; c++) {
            const vf u = load_token_n(p->l, token[c], i, p->dim - i, type);
            DLAB_UNROLL
            for (int r = 0; r < rows; r++) sum[r][c] = vf_fma(vf_load_n(query[r].q + i, p->dim - i), u, sum[r][c]);
        }
    }
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) part[r][column] = vf_fold4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

/* Scores of VF tokens from t on. */
DLAB_INLINE void score_tokens(const attn_query *query, const int rows, const attn_part *p, int64_t t,
                              const dlab_dtype type, const score_kind kind)
{
    vf part[SCORE_QUERIES][VF / 4];
    for (int64_t c = 0; c < VF / 4; c++) dot_tokens(query, rows, p, t + 4 * c, type, part, c);
    DLAB_UNROLL
    for (int r = 0; r < rows; r++) {
        vf s = vf_fold(part[r]);
        if (kind == SCORE_SCALED)
            s = vf_fma(s, vf_load(p->l->scale + t), vf_mul(vf_load(p->l->shift + t), vf_set1(query[r].sum)));
        else if (kind == SCORE_SHIFTED)
            s = vf_mul(vf_add(s, vf_set1(query[r].shift)), vf_set1(p->factor));
        else
            s = vf_mul(s, vf_set1(p->factor));
        vf_store(query[r].scores + t, s);
    }
}

DLAB_INLINE void scores_as(const attn_query *query, int64_t n, const attn_part *p, const dlab_dtype type,
                           const score_kind kind)
{
    for (int64_t t = p->begin; t < p->end; t += VF) {
        int64_t i = 0;
        for (int64_t c = 0; c < VF && p->fetch; c++) fetch_token(p->l, t + LIST_AHEAD + c);
        for (; i + SCORE_QUERIES <= n; i += SCORE_QUERIES) score_tokens(query + i, SCORE_QUERIES, p, t, type, kind);
#if SCORE_QUERIES >= 4
        if (n - i == 3) score_tokens(query + i, 3, p, t, type, kind);
#endif
#if SCORE_QUERIES >= 3
        if (n - i == 2) score_tokens(query + i, 2, p, t, type, kind);
#endif
        if (n - i == 1) score_tokens(query + i, 1, p, t, type, kind);
    }
}

static inline float sum_of(const float *x, int64_t n)
{
    vf s = vf_set1(0);
    int64_t i = 0;
    for (; i + VF <= n; i += VF) s = vf_add(s, vf_load(x + i));
    if (i < n) s = vf_add(s, vf_load_n(x + i, n - i));
    return vf_sum(s);
}

/* Channels have scales, the same for a group of tokens: these go into copies of the queries, once a group. */
static inline void scores_by_channel(const attn_query *query, int64_t n, const attn_part *p, attn_query *own,
                                     float *space)
{
    for (int64_t t = p->begin; t < p->end;) {
        attn_part group = {p->l, t, t + 1, p->dim, p->factor, true};
        while (group.end < p->end && p->l->words[group.end] == p->l->words[t]) group.end++;
        for (int64_t i = 0; i < n; i++) {
            float *q = space + i * p->dim;
            vf shift = vf_set1(0);
            for (int64_t c = 0; c < p->dim; c += VF) {
                const int64_t lanes = dlab_min_i64(VF, p->dim - c);
                uint32_t words[VF] = {0};
                vf scale, zero;
                memcpy(words, p->l->words[t] + 4 * c, (size_t)lanes * 4);
                vf_load_scales(words, &scale, &zero);
                const vf x = vf_mul(vf_load_n(query[i].q + c, lanes), scale);
                vf_store_n(q + c, lanes, x);
                shift = vf_fma(vf_sub(vf_set1(0), x), zero, shift);
            }
            own[i] = (attn_query){q, query[i].scores, 0, vf_sum(shift)};
        }
        scores_as(own, n, &group, DLAB_U8, SCORE_SHIFTED);
        t = group.end;
    }
}

/* ---- values ---- */

/* A query's weights, of the list's tokens in order, and the sum of weighted values that they add to. */
typedef struct {
    float *weight;
    float *out;
    int64_t n_tok; /* the first so many of the list are the query's */
} attn_sum;

DLAB_INLINE void values_columns(const attn_sum *sum, const int queries, const attn_part *p, int64_t column,
                                const int n_vec, const dlab_dtype type)
{
    vf o[VALUE_QUERIES][4];
    DLAB_UNROLL
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < n_vec; j++) o[i][j] = vf_load(sum[i].out + column + j * VF);
    for (int64_t t = p->begin; t < p->end; t++) {
        if (column == 0 && p->fetch) fetch_token(p->l, t + LIST_AHEAD);
        vf u[4];
        load_together(p->l, t, column, n_vec, type, u);
        DLAB_UNROLL
        for (int i = 0; i < queries; i++) {
            const vf w = vf_set1(sum[i].weight[t]);
            DLAB_UNROLL
            for (int j = 0; j < n_vec; j++) o[i][j] = vf_fma(w, u[j], o[i][j]);
        }
    }
    DLAB_UNROLL
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < n_vec; j++) vf_store(sum[i].out + column + j * VF, o[i][j]);
}

DLAB_INLINE void values_block(const attn_sum *sum, const int queries, const attn_part *p, const dlab_dtype type)
{
    if (p->begin >= p->end) return;
    int64_t column = 0;
    for (; column + 4 * VF <= p->dim; column += 4 * VF) values_columns(sum, queries, p, column, 4, type);
    for (; column + VF <= p->dim; column += VF) values_columns(sum, queries, p, column, 1, type);
    if (column >= p->dim) return;
    const int64_t rest = p->dim - column;
    for (int i = 0; i < queries; i++) {
        vf o = vf_load_n(sum[i].out + column, rest);
        for (int64_t t = p->begin; t < p->end; t++)
            o = vf_fma(vf_set1(sum[i].weight[t]), load_token_n(p->l, t, column, rest, type), o);
        vf_store_n(sum[i].out + column, rest, o);
    }
}

/* Queries see different numbers of tokens: what all of a group see is done together, the rest one by one. */
DLAB_INLINE void values_group(const attn_sum *sum, const int queries, const attn_part *p, bool fetch,
                              const dlab_dtype type)
{
    attn_part part = *p;
    part.fetch = fetch;
    for (int i = 0; i < queries; i++) part.end = dlab_min_i64(part.end, sum[i].n_tok);
    part.end = dlab_max_i64(part.end, part.begin);
    values_block(sum, queries, &part, type);
    const int64_t common = part.end;
    part.fetch = false;
    for (int i = 0; i < queries; i++) {
        part.begin = common;
        part.end = dlab_min_i64(p->end, sum[i].n_tok);
        values_block(sum + i, 1, &part, type);
    }
}

DLAB_INLINE void values_as(const attn_sum *sum, int64_t n, const attn_part *p, const dlab_dtype type)
{
    int64_t i = 0;
    bool fetch = p->fetch;
    for (; i + VALUE_QUERIES <= n; i += VALUE_QUERIES, fetch = false)
        values_group(sum + i, VALUE_QUERIES, p, fetch, type);
#if VALUE_QUERIES >= 4
    if (n - i == 3) values_group(sum + i, 3, p, fetch, type);
    if (n - i == 2) values_group(sum + i, 2, p, fetch, type);
#endif
    if (n - i == 1) values_group(sum + i, 1, p, fetch, type);
}

/* Puts the tokens' scales into the weights; what their zero points add is the same for all elements. */
static inline void fold_scales(const attn_sum *sum, int64_t n, const attn_part *p)
{
    const attn_list *l = p->l;
    for (int64_t i = 0; i < n; i++) {
        const int64_t end = dlab_min_i64(p->end, sum[i].n_tok);
        float *w = sum[i].weight;
        vf shift = vf_set1(0);
        for (int64_t t = 0; t < end; t += VF) {
            const int64_t lanes = dlab_min_i64(VF, end - t);
            const vf x = vf_load_n(w + t, lanes);
            shift = vf_fma(x, vf_load_n(l->shift + t, lanes), shift);
            vf_store_n(w + t, lanes, vf_mul(x, vf_load_n(l->scale + t, lanes)));
        }
        const float add = vf_sum(shift);
        for (int64_t c = 0; c < p->dim; c++) sum[i].out[c] += add;
    }
}

/* ---- softmax ---- */

/* s := exp(s − max(s)) over n ≥ 1 scores; returns the maximum and their sum. */
static inline float attn_exp(float *s, int64_t n, float *sum)
{
    int64_t i = 0;
    float most = s[0];
    vf m = vf_set1(most), total = vf_set1(0);
    for (; i + VF <= n; i += VF) m = vf_max(m, vf_load(s + i));
    most = vf_max_lane(m);
    for (; i < n; i++) most = s[i] > most ? s[i] : most;
    for (i = 0; i + VF <= n; i += VF) {
        vf e = vf_exp(vf_sub(vf_load(s + i), vf_set1(most)));
        vf_store(s + i, e);
        total = vf_add(total, e);
    }
    if (i < n) {
        vf_store_n(s + i, n - i, vf_exp(vf_sub(vf_load_n(s + i, n - i), vf_set1(most))));
        total = vf_add(total, vf_load_n(s + i, n - i));
    }
    *sum = vf_sum(total);
    return most;
}

static inline void scale_row(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

#endif
