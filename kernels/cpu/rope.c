/* Rotary positions in place. A task is a row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t rope_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_rope_args *)args)->n_rows;
}

/* Pairs are (i·step, i·step + apart). */
DLAB_INLINE void rotate(float *x, const float *table, int n_pairs, int step, int apart)
{
    for (int i = 0; i < n_pairs; i++) {
        const float c = table[2 * i], s = table[2 * i + 1];
        const float a = x[i * step], b = x[i * step + apart];
        x[i * step] = a * c - b * s;
        x[i * step + apart] = a * s + b * c;
    }
}

static void rope_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_rope_args *a = args;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    const int n_pairs = a->rot_dim / 2;
    for (int64_t r = begin; r < end; r++) {
        const float *table = (const float *)dlab_host_ptr(a->table) + (int64_t)rows[r].pos * 2 * n_pairs;
        float *x = (float *)dlab_host_ptr(a->x) + r * a->n_heads * a->head_dim;
        for (int h = 0; h < a->n_heads; h++, x += a->head_dim) {
            if (a->norm)
                rotate(x, table, n_pairs, 2, 1);
            else
                rotate(x, table, n_pairs, 1, n_pairs);
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(rope) = {"rope", 1, rope_tasks, rope_run, NULL, true};
