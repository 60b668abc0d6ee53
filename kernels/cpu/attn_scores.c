/* Scores of all visible tokens into memory. A task is (tile of rows, KV head, piece of 256 tokens). */
#include "kernels/cpu/attn.h"

static int64_t n_pieces(const dlab_attn_unfused_args *a) { return dlab_ceil_div(a->max_len, DLAB_ATTN_PIECE); }

static int64_t tile_rows(const dlab_attn_unfused_args *a)
{
    return attn_tile_rows(dlab_host_ptr(a->desc), a->n_rows, a->n_heads / a->kv.n_kv_heads);
}

static int64_t scores_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    return dlab_ceil_div(a->n_rows, tile_rows(a)) * a->kv.n_kv_heads * n_pieces(a);
}

static size_t scores_scratch(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    return (size_t)dlab_max_i64(TILE_QUERIES, a->n_heads / a->kv.n_kv_heads) * sizeof(attn_query);
}

/* Each row up to its own last token: what lies behind is not this op's to touch. */
static void scores_piece(const dlab_attn_unfused_args *a, const attn_tile *t, int64_t piece, attn_query *query)
{
    const int64_t begin = piece * DLAB_ATTN_PIECE;
    const float *q = dlab_host_ptr(a->q);
    float *scores = dlab_host_ptr(a->scores);
    int64_t end = begin + DLAB_ATTN_PIECE;
    for (int64_t r = t->first; r < t->first + t->n; r++) end = dlab_min_i64(end, attn_visible(t, r));
    int64_t n = 0;
    for (int64_t r = t->first; r < t->first + t->n; r++) {
        for (int64_t h = t->head; h < t->head + t->per_row; h++) {
            float *row = scores + (h * a->n_rows + r) * a->max_len + begin;
            query[n++] = (attn_query){q + (r * a->n_heads + h) * a->kv.head_dim, row};
        }
    }
    if (begin < end) attn_tile_scores(t, &a->kv, query, n, begin, end, a->scale);
    const int64_t done = dlab_max_i64(begin, end);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row_end = attn_visible(t, t->first + i / t->per_row);
        const int64_t last = dlab_min_i64(begin + DLAB_ATTN_PIECE, row_end);
        if (done >= last) continue;
        const attn_query rest = {query[i].q, query[i].scores + (done - begin)};
        attn_tile_scores(t, &a->kv, &rest, 1, done, last, a->scale);
    }
}

static void scores_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const int64_t pieces = n_pieces(a), groups = a->kv.n_kv_heads, rows = tile_rows(a);
    for (int64_t task = begin; task < end; task++) {
        const int64_t piece = task % pieces, group = task / pieces % groups, tile = task / pieces / groups;
        const int64_t last = dlab_min_i64((tile + 1) * rows, a->n_rows);
        for (int64_t r = tile * rows; r < last;) {
            const attn_tile t = attn_tile_at(desc, &a->kv, a->n_heads, r, last, group);
            scores_piece(a, &t, piece, scratch);
            r += t.n;
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_scores) = {"attn_scores", 1, scores_tasks, scores_run, scores_scratch};
