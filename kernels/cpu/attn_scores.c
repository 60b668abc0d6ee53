/* Scores of all visited tokens into memory. A task is (tile of rows, KV head, piece of 256 positions). */
#include "kernels/cpu/attn_piece.h"

static int64_t n_pieces(const dlab_attn_unfused_args *a) { return dlab_ceil_div(a->max_len, DLAB_ATTN_PIECE); }

static int64_t scores_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    const attn at = attn_of_unfused(a);
    return attn_tiles(&at) * a->kv.n_kv_heads * n_pieces(a);
}

static size_t scores_scratch(const void *args)
{
    const attn at = attn_of_unfused(args);
    return attn_work_at(&at, NULL, NULL);
}

/* The rows' scores are made in scratch, where a row may have more than it sees. */
static void scores_group(const dlab_attn_unfused_args *a, const attn_tile *t, const attn_group *g, int64_t begin,
                         const attn_work *w)
{
    if (g->most == 0) return;
    const int64_t per_row = t->a->per_row;
    int64_t n = 0;
    for (int64_t row = g->first; row < g->first + g->n; row++) {
        for (int64_t h = t->head; h < t->head + per_row; h++, n++) {
            const float *q = (const float *)dlab_host_ptr(a->q) + (row * a->n_heads + h) * a->kv.head_dim;
            w->query[n] = (attn_query){.q = q, .scores = w->scores + n * SCORES_STRIDE};
        }
    }
    attn_list_keys(w, t, g, begin, begin + DLAB_ATTN_PIECE);
    attn_list_follow(w->keys, NULL);
    attn_piece_scores(t, n, w);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = g->first + i / per_row, h = t->head + i % per_row;
        float *scores = (float *)dlab_host_ptr(a->scores) + (h * a->n_rows + row) * a->max_len;
        const size_t count = (size_t)g->count[i / per_row];
        memcpy(scores + attn_count(t, row, 0, begin), w->query[i].scores, count * sizeof *scores);
    }
}

static void scores_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    const attn at = attn_of_unfused(a);
    const int64_t pieces = n_pieces(a), groups = a->kv.n_kv_heads, rows = attn_tile_rows(&at);
    attn_work w;
    attn_work_at(&at, scratch, &w);
    for (int64_t task = begin; task < end; task++) {
        const int64_t from = task % pieces * DLAB_ATTN_PIECE, tile = task / pieces / groups;
        const int64_t last = dlab_min_i64((tile + 1) * rows, a->n_rows);
        for (int64_t r = tile * rows; r < last;) {
            const attn_tile t = attn_tile_at(&at, r, last, task / pieces % groups);
            for (const int64_t next = r + t.n; r < next;) {
                const attn_group g = attn_group_at(&t, r, from, from + DLAB_ATTN_PIECE);
                scores_group(a, &t, &g, from, &w);
                r += g.n;
            }
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_scores) = {"attn_scores",  1,    scores_tasks, scores_run,
                                                      scores_scratch, false};
