/* Weighted sums of values with the probabilities in memory, piece by piece. A task is (tile of rows, KV head). */
#include "kernels/cpu/attn_piece.h"

static int64_t values_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    const attn at = attn_of_unfused(a);
    return attn_tiles(&at) * a->kv.n_kv_heads;
}

static size_t values_scratch(const void *args)
{
    const attn at = attn_of_unfused(args);
    return attn_work_at(&at, NULL, NULL);
}

static float *out_of(const dlab_attn_unfused_args *a, int64_t row, int64_t head)
{
    return (float *)dlab_host_ptr(a->out) + (row * a->n_heads + head) * a->kv.head_dim;
}

/* The weights are copied: scales are put into them. */
static void add_group(const dlab_attn_unfused_args *a, const attn_tile *t, const attn_group *g, int64_t begin,
                      const attn_work *w)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const int64_t row = g->first + i, before = attn_count(t, row, 0, begin);
        if (g->count[i] == 0) continue;
        for (int64_t h = t->head; h < t->head + t->a->per_row; h++) {
            const float *weight = (const float *)dlab_host_ptr(a->scores) + (h * a->n_rows + row) * a->max_len + before;
            float *copy = w->scores + n * SCORES_STRIDE;
            memcpy(copy, weight, (size_t)g->count[i] * sizeof *copy);
            w->sum[n++] = (attn_sum){copy, out_of(a, row, h), g->count[i]};
        }
    }
    if (n == 0) return;
    attn_list_values(w, t, g, begin, begin + DLAB_ATTN_PIECE);
    attn_list_follow(w->values, NULL);
    attn_piece_values(t, n, w);
}

static void values_tile(const dlab_attn_unfused_args *a, const attn_tile *t, const attn_work *w)
{
    for (int64_t r = t->first; r < t->first + t->n; r++)
        memset(out_of(a, r, t->head), 0, (size_t)(t->a->per_row * a->kv.head_dim) * sizeof(float));
    const int64_t most = attn_most_visible(t);
    for (int64_t begin = 0; begin < most; begin += DLAB_ATTN_PIECE) {
        for (int64_t r = t->first; r < t->first + t->n;) {
            const attn_group g = attn_group_at(t, r, begin, begin + DLAB_ATTN_PIECE);
            add_group(a, t, &g, begin, w);
            r += g.n;
        }
    }
}

static void values_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    const attn at = attn_of_unfused(a);
    const int64_t groups = a->kv.n_kv_heads, rows = attn_tile_rows(&at);
    attn_work w;
    attn_work_at(&at, scratch, &w);
    for (int64_t task = begin; task < end; task++) {
        const int64_t last = dlab_min_i64((task / groups + 1) * rows, a->n_rows);
        for (int64_t r = task / groups * rows; r < last;) {
            const attn_tile t = attn_tile_at(&at, r, last, task % groups);
            values_tile(a, &t, &w);
            r += t.n;
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_values) = {"attn_values",  1,    values_tasks, values_run,
                                                      values_scratch, false};
