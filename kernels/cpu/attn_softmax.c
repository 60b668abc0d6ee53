/* Softmax of the scores in memory, over each row's visited tokens. A task is (row, head). */
#include "kernels/cpu/attn_math.h"

static int64_t softmax_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_attn_unfused_args *a = args;
    return (int64_t)a->n_rows * a->n_heads;
}

static void softmax_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_attn_unfused_args *a = args;
    const attn at = attn_of_unfused(a);
    for (int64_t task = begin; task < end; task++) {
        const int64_t row = task / a->n_heads, head = task % a->n_heads;
        const attn_tile t = attn_tile_at(&at, row, row + 1, head / at.per_row);
        const int64_t n = attn_count(&t, row, 0, attn_visible(&t, row));
        if (n == 0) continue;
        float *scores = (float *)dlab_host_ptr(a->scores) + (head * a->n_rows + row) * a->max_len, sum;
        attn_exp(scores, n, &sum);
        scale_row(scores, n, 1 / sum);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(attn_softmax) = {"attn_softmax", 1, softmax_tasks, softmax_run, NULL, false};
