/* Attention in one pass over the cache, by pieces of 256 tokens: of each, scores, their exponentials and the weighted
 * values, with maximum and sum beside them, merged in order.
 * Few rows: phase 0 makes the pieces, a task is (tile of rows, KV head, piece), and they meet in `partials`; phase 1
 * merges, a task is (row, head). Many rows: phase 0 does both, a task is (tile, KV head), with the pieces of one tile in
 * the thread's scratch; phase 1 has nothing to do. */
#include "kernels/cpu/attn.h"

static int64_t n_pieces(const dlab_attn_fused_args *a) { return dlab_ceil_div(a->max_len, DLAB_ATTN_PIECE); }

static int64_t tile_rows(const dlab_attn_fused_args *a)
{
    return attn_tile_rows(dlab_host_ptr(a->desc), a->n_rows, a->n_heads / a->kv.n_kv_heads);
}

static bool splits(const dlab_attn_fused_args *a) { return a->n_rows <= DLAB_ATTN_SPLIT_ROWS; }

static int64_t fused_tasks(const void *args, int phase)
{
    const dlab_attn_fused_args *a = args;
    if (phase == 1) return splits(a) ? (int64_t)a->n_rows * a->n_heads : 0;
    return dlab_ceil_div(a->n_rows, tile_rows(a)) * a->kv.n_kv_heads * (splits(a) ? n_pieces(a) : 1);
}

/* For each query of a tile: scores of a piece, and the two lists of what belongs to it. */
static int64_t most_queries(const dlab_attn_fused_args *a)
{
    return dlab_max_i64(TILE_QUERIES, a->n_heads / a->kv.n_kv_heads);
}

/* Floats of one query's piece: o [d], then maximum and sum. */
static int64_t part_floats(const dlab_attn_fused_args *a) { return a->kv.head_dim + 2; }

static size_t fused_scratch(const void *args)
{
    const dlab_attn_fused_args *a = args;
    size_t one = DLAB_ATTN_PIECE * sizeof(float) + sizeof(attn_query) + sizeof(attn_sum);
    if (!splits(a)) one += (size_t)(n_pieces(a) * part_floats(a)) * sizeof(float);
    return (size_t)most_queries(a) * one;
}

/* The pieces of one (row, head), one after the other. */
static float *parts_of(const dlab_attn_fused_args *a, int64_t row, int64_t head)
{
    return (float *)dlab_host_ptr(a->partials) + (row * a->n_heads + head) * n_pieces(a) * part_floats(a);
}

/* parts: of the tile's queries in order, or NULL for the op's partials. */
static void fused_piece(const dlab_attn_fused_args *a, const attn_tile *t, int64_t piece, float *parts, void *scratch)
{
    const int64_t begin = piece * DLAB_ATTN_PIECE, d = a->kv.head_dim;
    const int64_t end = dlab_min_i64(begin + DLAB_ATTN_PIECE, attn_most_visible(t));
    if (begin >= end) return;
    float *scores = scratch;
    attn_query *query = (attn_query *)(scores + most_queries(a) * DLAB_ATTN_PIECE);
    attn_sum *sum = (attn_sum *)(query + most_queries(a));
    int64_t n = 0, index = 0;
    for (int64_t r = t->first; r < t->first + t->n; r++) {
        const int64_t n_tok = dlab_min_i64(DLAB_ATTN_PIECE, attn_visible(t, r) - begin);
        for (int64_t h = t->head; h < t->head + t->per_row; h++, index++) {
            if (n_tok <= 0) continue;
            float *row = scores + n * DLAB_ATTN_PIECE;
            float *part = parts ? parts + index * n_pieces(a) * part_floats(a) : parts_of(a, r, h);
            query[n] = (attn_query){(const float *)dlab_host_ptr(a->q) + (r * a->n_heads + h) * d, row};
            sum[n++] = (attn_sum){row, part + piece * part_floats(a), n_tok};
        }
    }
    attn_tile_scores(t, &a->kv, query, n, begin, end, a->scale);
    for (int64_t i = 0; i < n; i++) {
        memset(sum[i].out, 0, (size_t)d * sizeof(float));
        sum[i].out[d] = attn_exp(query[i].scores, sum[i].n_tok, &sum[i].out[d + 1]);
    }
    attn_tile_values(t, &a->kv, sum, n, begin, end);
}

static void merge(const dlab_attn_fused_args *a, int64_t row, int64_t head, const float *parts, int64_t visible)
{
    const int64_t d = a->kv.head_dim, pieces = dlab_ceil_div(visible, DLAB_ATTN_PIECE);
    float *out = (float *)dlab_host_ptr(a->out) + (row * a->n_heads + head) * d;
    memset(out, 0, (size_t)d * sizeof(float));
    if (pieces == 0) return;
    float most = parts[d], sum = 0;
    for (int64_t p = 1; p < pieces; p++) {
        const float m = parts[p * part_floats(a) + d];
        most = m > most ? m : most;
    }
    for (int64_t p = 0; p < pieces; p++) {
        const float *part = parts + p * part_floats(a);
        float weight[VF];
        vf_store(weight, vf_exp(vf_set1(part[d] - most)));
        sum += part[d + 1] * weight[0];
        for (int64_t i = 0; i < d; i++) out[i] += part[i] * weight[0];
    }
    scale_row(out, d, 1 / sum);
}

/* All pieces of one tile, then their merging. */
static void fused_whole(const dlab_attn_fused_args *a, const attn_tile *t, void *scratch)
{
    float *parts = scratch;
    void *rest = parts + most_queries(a) * n_pieces(a) * part_floats(a);
    const int64_t pieces = dlab_ceil_div(attn_most_visible(t), DLAB_ATTN_PIECE);
    for (int64_t p = 0; p < pieces; p++) fused_piece(a, t, p, parts, rest);
    for (int64_t r = t->first; r < t->first + t->n; r++) {
        for (int64_t h = t->head; h < t->head + t->per_row; h++) {
            merge(a, r, h, parts, attn_visible(t, r));
            parts += n_pieces(a) * part_floats(a);
        }
    }
}

static void fused_tiles(const dlab_attn_fused_args *a, int64_t begin, int64_t end, void *scratch)
{
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const int64_t pieces = splits(a) ? n_pieces(a) : 1, groups = a->kv.n_kv_heads, rows = tile_rows(a);
    for (int64_t task = begin; task < end; task++) {
        const int64_t piece = task % pieces, group = task / pieces % groups, tile = task / pieces / groups;
        const int64_t last = dlab_min_i64((tile + 1) * rows, a->n_rows);
        for (int64_t r = tile * rows; r < last;) {
            const attn_tile t = attn_tile_at(desc, &a->kv, a->n_heads, r, last, group);
            if (splits(a))
                fused_piece(a, &t, piece, NULL, scratch);
            else
                fused_whole(a, &t, scratch);
            r += t.n;
        }
    }
}

static void fused_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    const dlab_attn_fused_args *a = args;
    if (phase == 0) {
        fused_tiles(a, begin, end, scratch);
        return;
    }
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    for (int64_t task = begin; task < end; task++) {
        const int64_t row = task / a->n_heads, head = task % a->n_heads;
        const attn_tile t = attn_tile_at(desc, &a->kv, a->n_heads, row, row + 1, 0);
        merge(a, row, head, parts_of(a, row, head), attn_visible(&t, row));
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_fused) = {"attn_fused", 2, fused_tasks, fused_run, fused_scratch};
