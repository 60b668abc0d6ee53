/* Root-mean-square norm. A task is a row. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t rmsnorm_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_rmsnorm_args *)args)->n_rows;
}

static float sum_squares(const float *x, int64_t n)
{
    vf s[2] = {vf_set1(0), vf_set1(0)};
    int64_t i = 0;
    for (; i + 2 * VF <= n; i += 2 * VF) {
        vf a = vf_load(x + i), b = vf_load(x + i + VF);
        s[0] = vf_fma(a, a, s[0]);
        s[1] = vf_fma(b, b, s[1]);
    }
    for (; i < n; i += VF) {
        vf a = n - i < VF ? vf_load_n(x + i, n - i) : vf_load(x + i);
        s[0] = vf_fma(a, a, s[0]);
    }
    return vf_sum(vf_add(s[0], s[1]));
}

/* Returns the mean square. */
static float rmsnorm_row(const float *x, const float *w, float *y, int64_t n, float eps)
{
    const float mean = sum_squares(x, n) / (float)n, inv = 1.0f / sqrtf(mean + eps);
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store(y + i, vf_mul(vf_mul(vf_load(x + i), vf_set1(inv)), vf_load(w + i)));
    for (; i < n; i++) y[i] = x[i] * inv * w[i];
    return mean;
}

static void rmsnorm_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_rmsnorm_args *a = args;
    const float *x = dlab_host_ptr(a->x), *w = dlab_host_ptr(a->w);
    float *y = dlab_host_ptr(a->y);
    int32_t *watch = a->watch.buf.ptr ? dlab_host_ptr(a->watch) : NULL;
    for (int64_t r = begin; r < end; r++) {
        const bool broken = !isfinite(rmsnorm_row(x + r * a->dim, w, y + r * a->dim, a->dim, a->eps));
        if (watch && (broken || a->watch_first)) watch[r] = broken;
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(rmsnorm) = {"rmsnorm", 1, rmsnorm_tasks, rmsnorm_run, NULL, true};
