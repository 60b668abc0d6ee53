/* Attention in one pass over the cache, by pieces of 256 positions: of each, scores, their exponentials and the weighted
 * values, with maximum and sum beside them, merged in order.
 * Few rows: phase 0 makes the pieces, a task is (tile of rows, KV head, piece), and they meet in `partials`; phase 1
 * merges, a task is (row, head). Many rows: phase 0 does both, a task is (tile, KV head), with the pieces of one tile in
 * the thread's scratch; phase 1 has nothing to do. */
#include <math.h>

#include "kernels/cpu/attn_piece.h"

static attn fused_of(const dlab_attn_fused_args *a)
{
    return attn_of(a->desc, &a->kv, &a->spans, a->n_rows, a->n_heads, a->scale);
}

static int64_t n_pieces(const dlab_attn_fused_args *a) { return dlab_ceil_div(a->max_len, DLAB_ATTN_PIECE); }

static bool splits(const dlab_attn_fused_args *a) { return a->n_rows <= DLAB_ATTN_SPLIT_ROWS; }

static int64_t fused_tasks(const void *args, int phase)
{
    const dlab_attn_fused_args *a = args;
    if (phase == 1) return splits(a) ? (int64_t)a->n_rows * a->n_heads : 0;
    const attn at = fused_of(a);
    return attn_tiles(&at) * a->kv.n_kv_heads * (splits(a) ? n_pieces(a) : 1);
}

/* Floats of one query's piece: o [d], then maximum and sum; the sum is 0 where nothing is visited. */
static int64_t part_floats(const dlab_attn_fused_args *a) { return a->kv.head_dim + 2; }

static size_t fused_scratch(const void *args)
{
    const dlab_attn_fused_args *a = args;
    const attn at = fused_of(a);
    size_t bytes = attn_work_at(&at, NULL, NULL);
    if (!splits(a)) bytes += (size_t)(attn_most_queries(&at) * n_pieces(a) * part_floats(a)) * sizeof(float);
    return bytes;
}

/* The pieces of one (row, head), one after the other. */
static float *parts_of(const dlab_attn_fused_args *a, int64_t row, int64_t head)
{
    return (float *)dlab_host_ptr(a->partials) + (row * a->n_heads + head) * n_pieces(a) * part_floats(a);
}

/* parts: of the tile's queries in order, or NULL for the op's partials. */
static void fused_group(const dlab_attn_fused_args *a, const attn_tile *t, const attn_group *g, int64_t piece,
                        float *parts, const attn_work *w)
{
    const int64_t d = a->kv.head_dim, begin = piece * DLAB_ATTN_PIECE, end = begin + DLAB_ATTN_PIECE;
    const int64_t per_row = t->a->per_row;
    int64_t n = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const int64_t row = g->first + i;
        for (int64_t h = 0; h < per_row; h++) {
            float *part = parts ? parts + ((row - t->first) * per_row + h) * n_pieces(a) * part_floats(a)
                                : parts_of(a, row, t->head + h);
            part += piece * part_floats(a);
            part[d + 1] = 0;
            if (g->count[i] == 0) continue;
            float *scores = w->scores + n * SCORES_STRIDE;
            const float *q = (const float *)dlab_host_ptr(a->q) + (row * a->n_heads + t->head + h) * d;
            w->query[n] = (attn_query){.q = q, .scores = scores};
            w->sum[n++] = (attn_sum){scores, part, g->count[i]};
        }
    }
    if (n == 0) return;
    attn_list_keys(w, t, g, begin, end);
    attn_list_values(w, t, g, begin, end);
    attn_list_follow(w->keys, w->values);
    attn_list_follow(w->values, NULL);
    attn_piece_scores(t, n, w);
    for (int64_t i = 0; i < n; i++) {
        float *out = w->sum[i].out;
        memset(out, 0, (size_t)d * sizeof(float));
        out[d] = attn_exp(w->query[i].scores, w->sum[i].n_tok, &out[d + 1]);
    }
    attn_piece_values(t, n, w);
}

static void fused_piece(const dlab_attn_fused_args *a, const attn_tile *t, int64_t piece, float *parts,
                        const attn_work *w)
{
    const int64_t begin = piece * DLAB_ATTN_PIECE, end = begin + DLAB_ATTN_PIECE;
    if (begin >= attn_most_visible(t)) return;
    for (int64_t r = t->first; r < t->first + t->n;) {
        const attn_group g = attn_group_at(t, r, begin, end);
        fused_group(a, t, &g, piece, parts, w);
        r += g.n;
    }
}

static void merge(const dlab_attn_fused_args *a, int64_t row, int64_t head, const float *parts, int64_t visible)
{
    const int64_t d = a->kv.head_dim, pieces = dlab_ceil_div(visible, DLAB_ATTN_PIECE);
    float *out = (float *)dlab_host_ptr(a->out) + (row * a->n_heads + head) * d;
    memset(out, 0, (size_t)d * sizeof(float));
    float most = -INFINITY, sum = 0;
    for (int64_t p = 0; p < pieces; p++) {
        const float *part = parts + p * part_floats(a);
        if (part[d + 1] != 0 && part[d] > most) most = part[d];
    }
    for (int64_t p = 0; p < pieces; p++) {
        const float *part = parts + p * part_floats(a);
        if (part[d + 1] == 0) continue;
        float weight[VF];
        vf_store(weight, vf_exp(vf_set1(part[d] - most)));
        sum += part[d + 1] * weight[0];
        for (int64_t i = 0; i < d; i++) out[i] += part[i] * weight[0];
    }
    if (sum != 0) scale_row(out, d, 1 / sum);
}

/* All pieces of one tile, then their merging. */
static void fused_whole(const dlab_attn_fused_args *a, const attn_tile *t, float *parts, const attn_work *w)
{
    const int64_t pieces = dlab_ceil_div(attn_most_visible(t), DLAB_ATTN_PIECE);
    for (int64_t p = 0; p < pieces; p++) fused_piece(a, t, p, parts, w);
    for (int64_t r = t->first; r < t->first + t->n; r++) {
        for (int64_t h = t->head; h < t->head + t->a->per_row; h++) {
            merge(a, r, h, parts, attn_visible(t, r));
            parts += n_pieces(a) * part_floats(a);
        }
    }
}

static void fused_tiles(const dlab_attn_fused_args *a, int64_t begin, int64_t end, void *scratch)
{
    const attn at = fused_of(a);
    const int64_t pieces = splits(a) ? n_pieces(a) : 1, groups = a->kv.n_kv_heads, rows = attn_tile_rows(&at);
    attn_work w;
    float *parts = (float *)(void *)((char *)scratch + attn_work_at(&at, scratch, &w));
    for (int64_t task = begin; task < end; task++) {
        const int64_t piece = task % pieces, group = task / pieces % groups, tile = task / pieces / groups;
        const int64_t last = dlab_min_i64((tile + 1) * rows, a->n_rows);
        for (int64_t r = tile * rows; r < last;) {
            const attn_tile t = attn_tile_at(&at, r, last, group);
            if (splits(a))
                fused_piece(a, &t, piece, NULL, &w);
            else
                fused_whole(a, &t, parts, &w);
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
    const attn at = fused_of(a);
    for (int64_t task = begin; task < end; task++) {
        const int64_t row = task / a->n_heads, head = task % a->n_heads;
        const attn_tile t = attn_tile_at(&at, row, row + 1, 0);
        merge(a, row, head, parts_of(a, row, head), attn_visible(&t, row));
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_fused) = {"attn_fused", 2, fused_tasks, fused_run, fused_scratch, false};
