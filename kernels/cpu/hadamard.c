/* Walsh–Hadamard transforms in place, of each head's vector. A task is a row. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t hadamard_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_hadamard_args *)args)->n_rows;
}

static size_t hadamard_scratch(const void *args)
{
    return 2 * (size_t)((const dlab_hadamard_args *)args)->head_dim * sizeof(float);
}

/* Sums of neighbours go to the first half, differences to the second: each round turns the index by one bit, so that after
 * all rounds everything is in its place again, and no round has loops shorter than the others. */
static void add_neighbours(const float *restrict x, float *restrict y, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        y[i] = x[2 * i] + x[2 * i + 1];
        y[half + i] = x[2 * i] - x[2 * i + 1];
    }
}

static void transform(float *x, int64_t n, float *from, float *to)
{
    memcpy(from, x, (size_t)n * sizeof *x);
    for (int64_t round = 1; round < n; round *= 2) {
        add_neighbours(from, to, n / 2);
        float *done = to;
        to = from;
        from = done;
    }
    const float scale = 1 / sqrtf((float)n);
    for (int64_t i = 0; i < n; i++) x[i] = from[i] * scale;
}

static void hadamard_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_hadamard_args *a = args;
    const int64_t n = a->head_dim & -a->head_dim, row = (int64_t)a->n_heads * a->head_dim;
    float *x = dlab_host_ptr(a->x), *work = scratch;
    for (int64_t i = begin * row; i < end * row; i += n) transform(x + i, n, work, work + a->head_dim);
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(hadamard) = {"hadamard", 1, hadamard_tasks, hadamard_run, hadamard_scratch, true};
