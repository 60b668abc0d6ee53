/* Weighted sums of values with the probabilities in memory. A task is (tile of rows, KV head). */
#include "kernels/cpu/attn.h"

static int64_t tile_rows(const dlab_attn_unfused_args *a)
{
    return attn_tile_rows(dlab_host_ptr(a->desc), a->n_rows, a->n_heads / a->kv.n_kv_heads);
}

static int64_t values_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    return dlab_ceil_div(a->n_rows, tile_rows(a)) * a->kv.n_kv_heads;
}

static size_t values_scratch(const void *args)
{
    const dlab_attn_unfused_args *a = args;
    return (size_t)dlab_max_i64(TILE_QUERIES, a->n_heads / a->kv.n_kv_heads) * sizeof(attn_sum);
}

static void values_tile(const dlab_attn_unfused_args *a, const attn_tile *t, attn_sum *sum)
{
    const int64_t d = a->kv.head_dim;
    int64_t n = 0;
    for (int64_t r = t->first; r < t->first + t->n; r++) {
        for (int64_t h = t->head; h < t->head + t->per_row; h++, n++) {
            const float *weight = (const float *)dlab_host_ptr(a->scores) + (h * a->n_rows + r) * a->max_len;
            float *out = (float *)dlab_host_ptr(a->out) + (r * a->n_heads + h) * d;
            memset(out, 0, (size_t)d * sizeof(float));
            sum[n] = (attn_sum){weight, out, attn_visible(t, r)};
        }
    }
    attn_tile_values(t, &a->kv, sum, n, 0, attn_most_visible(t));
}

static void values_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    const dlab_desc_head *desc = dlab_host_ptr(a->desc);
    const int64_t groups = a->kv.n_kv_heads, rows = tile_rows(a);
    for (int64_t task = begin; task < end; task++) {
        const int64_t group = task % groups, last = dlab_min_i64((task / groups + 1) * rows, a->n_rows);
        for (int64_t r = task / groups * rows; r < last;) {
            const attn_tile t = attn_tile_at(desc, &a->kv, a->n_heads, r, last, group);
            values_tile(a, &t, scratch);
            r += t.n;
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_values) = {"attn_values", 1, values_tasks, values_run, values_scratch};
