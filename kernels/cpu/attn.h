/* What the attention ops share: tiles of rows, the walk over a sequence's segments, products of queries with keys, and
 * weighted sums of values.
 *
 * A tile is some rows of the step by one KV head; its queries, all query heads of that KV head for each row, read every
 * key and value together. Each (row, head, token) or (row, head, element) is computed in an order of its own that
 * depends on nothing else, so tiles and segments may be cut in any way. */
#ifndef DLAB_KERNELS_CPU_ATTN_H
#define DLAB_KERNELS_CPU_ATTN_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dot.h"

#define TILE_QUERIES 32 /* about as many queries a tile as keep the loads shared and the scores in the first cache */
#define TILE_ROWS    8

/* Rows a tile: few when sequences bring few rows, so that there are tiles enough for all threads. */
static inline int64_t attn_tile_rows(const dlab_desc_head *desc, int64_t n_rows, int64_t queries_per_row)
{
    const int64_t rows_per_seq = desc->n_seqs > 0 ? n_rows / desc->n_seqs : n_rows;
    const int64_t fit = dlab_min_i64(TILE_ROWS, dlab_max_i64(1, TILE_QUERIES / queries_per_row));
    return dlab_max_i64(1, dlab_min_i64(fit, rows_per_seq));
}

/* Rows of one sequence, by one KV head. */
typedef struct {
    const dlab_desc_row *rows; /* of the step */
    const dlab_desc_seq *seq;
    const dlab_desc_seg *segs; /* of the sequence */
    int64_t first, n;          /* rows */
    int64_t group, head;       /* KV head; query heads head … head + per_row − 1 */
    int64_t per_row;
} attn_tile;

/* Tokens that a row of the tile sees. */
static inline int64_t attn_visible(const attn_tile *t, int64_t row)
{
    return dlab_max_i64(0, dlab_min_i64((int64_t)t->rows[row].pos + 1, t->seq->len));
}

static inline int64_t attn_most_visible(const attn_tile *t)
{
    int64_t most = 0;
    for (int64_t r = t->first; r < t->first + t->n; r++) most = dlab_max_i64(most, attn_visible(t, r));
    return most;
}

/* The part of rows [first, last) that is one sequence's. */
static inline attn_tile attn_tile_at(const dlab_desc_head *desc, const dlab_kv_view *kv, int64_t n_heads, int64_t first,
                                     int64_t last, int64_t group)
{
    const int64_t per_row = n_heads / kv->n_kv_heads;
    attn_tile t = {.rows = dlab_desc_rows(desc), .first = first, .n = 1, .group = group, .per_row = per_row};
    t.head = group * per_row;
    t.seq = dlab_desc_seqs(desc) + t.rows[first].seq;
    t.segs = dlab_desc_segs(desc) + t.seq->seg_begin;
    while (first + t.n < last && t.rows[first + t.n].seq == t.rows[first].seq) t.n++;
    return t;
}

/* A stretch of tokens that lie at a fixed distance in memory. */
typedef struct {
    const char *base; /* of token `begin` */
    int64_t stride;   /* bytes */
    int64_t begin, end;
} attn_run;

/* The segment that holds `token`, or n_segs. */
static inline int64_t attn_find_segment(const attn_tile *t, int64_t token)
{
    int64_t low = 0, high = t->seq->n_segs;
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if ((int64_t)t->segs[mid].tok_begin + t->segs[mid].n_tok <= token)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The run of keys (or values) in segment s, cut to tokens [begin, end); false when there is none left. */
static inline bool attn_run_of(const attn_tile *t, const dlab_kv_view *kv, bool keys, int64_t s, int64_t begin,
                               int64_t end, attn_run *run)
{
    if (s >= t->seq->n_segs) return false;
    const dlab_desc_seg *seg = &t->segs[s];
    run->begin = dlab_max_i64(begin, seg->tok_begin);
    run->end = dlab_min_i64(end, (int64_t)seg->tok_begin + seg->n_tok);
    run->stride = keys ? kv->k_token_stride : kv->v_token_stride;
    const int64_t head = t->group * (keys ? kv->k_head_stride : kv->v_head_stride);
    run->base = (const char *)dlab_host_ptr(keys ? kv->k : kv->v) + (keys ? seg->k_off : seg->v_off) + head +
                (run->begin - seg->tok_begin) * run->stride;
    return run->begin < run->end;
}

/* ---- scores ---- */

/* Where query i of a tile has its vector and its scores. */
typedef struct {
    const float *q;
    float *scores; /* of token `origin` on */
} attn_query;

DLAB_INLINE void scores_of_run(const attn_query *query, int64_t n, const attn_run *run, int64_t origin, int64_t d,
                               float scale, const dlab_dtype type)
{
    for (int64_t t = run->begin; t < run->end; t += 4) {
        const int64_t n_tok = dlab_min_i64(4, run->end - t);
        const void *k[4];
        for (int64_t c = 0; c < 4; c++) k[c] = run->base + (t - run->begin + dlab_min_i64(c, n_tok - 1)) * run->stride;
        for (int64_t i = 0; i < n; i += DOT_ROWS) {
            const int rows = (int)dlab_min_i64(DOT_ROWS, n - i);
            const float *q[DOT_ROWS];
            float out[DOT_ROWS * 4];
            for (int r = 0; r < rows; r++) q[r] = query[i + r].q;
            dot_rows(q, k, d, rows, type, out);
            for (int r = 0; r < rows; r++)
                for (int64_t c = 0; c < n_tok; c++) query[i + r].scores[t + c - origin] = out[4 * r + c] * scale;
        }
    }
}

/* Scores of tokens [begin, end) for the n queries; scores[0] of each is token begin's. */
static inline void attn_tile_scores(const attn_tile *t, const dlab_kv_view *kv, const attn_query *query, int64_t n,
                                    int64_t begin, int64_t end, float scale)
{
    attn_run run;
    for (int64_t s = attn_find_segment(t, begin); attn_run_of(t, kv, true, s, begin, end, &run); s++) {
        switch (kv->k_dtype) {
        case DLAB_F16:
            scores_of_run(query, n, &run, begin, kv->head_dim, scale, DLAB_F16);
            break;
        case DLAB_BF16:
            scores_of_run(query, n, &run, begin, kv->head_dim, scale, DLAB_BF16);
            break;
        default:
            scores_of_run(query, n, &run, begin, kv->head_dim, scale, DLAB_F32);
            break;
        }
    }
}

/* ---- values ---- */

/* Adds weight · value for tokens [begin, end) of `run` to queries' out [d]. */
typedef struct {
    const float *weight; /* of token `origin` on */
    float *out;
    int64_t n_tok; /* tokens from origin on that this query sees */
} attn_sum;

DLAB_INLINE void values_columns(const attn_sum *sum, const int queries, const attn_run *run, int64_t origin,
                                int64_t begin, int64_t end, int64_t column, const int n_vec, const dlab_dtype type)
{
    vf o[VALUE_QUERIES][4];
    DLAB_UNROLL
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < n_vec; j++) o[i][j] = vf_load(sum[i].out + column + j * VF);
    for (int64_t t = begin; t < end; t++) {
        const char *v = run->base + (t - run->begin) * run->stride;
        vf u[4];
        DLAB_UNROLL
        for (int j = 0; j < n_vec; j++) u[j] = vf_load_as(v, column + j * VF, type);
        DLAB_UNROLL
        for (int i = 0; i < queries; i++) {
            const vf w = vf_set1(sum[i].weight[t - origin]);
            DLAB_UNROLL
            for (int j = 0; j < n_vec; j++) o[i][j] = vf_fma(w, u[j], o[i][j]);
        }
    }
    DLAB_UNROLL
    for (int i = 0; i < queries; i++)
        for (int j = 0; j < n_vec; j++) vf_store(sum[i].out + column + j * VF, o[i][j]);
}

DLAB_INLINE void values_block(const attn_sum *sum, const int queries, const attn_run *run, int64_t origin,
                              int64_t begin, int64_t end, int64_t d, const dlab_dtype type)
{
    if (begin >= end) return;
    int64_t column = 0;
    for (; column + 4 * VF <= d; column += 4 * VF)
        values_columns(sum, queries, run, origin, begin, end, column, 4, type);
    for (; column + VF <= d; column += VF) values_columns(sum, queries, run, origin, begin, end, column, 1, type);
    if (column >= d) return;
    for (int i = 0; i < queries; i++) {
        vf o = vf_load_n(sum[i].out + column, d - column);
        for (int64_t t = begin; t < end; t++) {
            const vf u = vf_load_n_as(run->base + (t - run->begin) * run->stride, column, d - column, type);
            o = vf_fma(vf_set1(sum[i].weight[t - origin]), u, o);
        }
        vf_store_n(sum[i].out + column, d - column, o);
    }
}

/* Queries see different numbers of tokens: what all of a group see is done together, the rest one by one. */
DLAB_INLINE void values_group(const attn_sum *sum, const int queries, const attn_run *run, int64_t origin, int64_t d,
                              const dlab_dtype type)
{
    int64_t common = run->end;
    for (int i = 0; i < queries; i++) common = dlab_min_i64(common, origin + sum[i].n_tok);
    common = dlab_max_i64(common, run->begin);
    values_block(sum, queries, run, origin, run->begin, common, d, type);
    for (int i = 0; i < queries; i++) {
        const int64_t end = dlab_min_i64(run->end, origin + sum[i].n_tok);
        values_block(sum + i, 1, run, origin, common, end, d, type);
    }
}

DLAB_INLINE void values_of_run_as(const attn_sum *sum, int64_t n, const attn_run *run, int64_t origin, int64_t d,
                                  const dlab_dtype type)
{
    int64_t i = 0;
    for (; i + VALUE_QUERIES <= n; i += VALUE_QUERIES) values_group(sum + i, VALUE_QUERIES, run, origin, d, type);
#if VALUE_QUERIES >= 4
    if (n - i == 3) {
        values_group(sum + i, 3, run, origin, d, type);
        return;
    }
    if (n - i == 2) {
        values_group(sum + i, 2, run, origin, d, type);
        return;
    }
#endif
    if (n - i == 1) values_group(sum + i, 1, run, origin, d, type);
}

/* Adds to each query's out the weighted values of tokens [begin, begin + its n_tok). */
static inline void attn_tile_values(const attn_tile *t, const dlab_kv_view *kv, const attn_sum *sum, int64_t n,
                                    int64_t begin, int64_t end)
{
    attn_run run;
    for (int64_t s = attn_find_segment(t, begin); attn_run_of(t, kv, false, s, begin, end, &run); s++) {
        switch (kv->v_dtype) {
        case DLAB_F16:
            values_of_run_as(sum, n, &run, begin, kv->head_dim, DLAB_F16);
            break;
        case DLAB_BF16:
            values_of_run_as(sum, n, &run, begin, kv->head_dim, DLAB_BF16);
            break;
        default:
            values_of_run_as(sum, n, &run, begin, kv->head_dim, DLAB_F32);
            break;
        }
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
