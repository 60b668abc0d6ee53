/* silu(gate) · up. A task is a row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t swiglu_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_swiglu_args *)args)->n_rows;
}

DLAB_INLINE vf silu_mul(vf gate, vf up)
{
    vf down = vf_exp(vf_sub(vf_set1(0), gate));
    vf silu = vf_div(gate, vf_add(vf_set1(1), down));
    return vf_mul(vf_zero_below(silu, gate, vf_set1(-88)), up); /* there vf_exp no longer grows; silu is under 1e-36 */
}

static void swiglu_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_swiglu_args *a = args;
    const float *gate = dlab_host_ptr(a->gate), *up = dlab_host_ptr(a->up);
    float *out = dlab_host_ptr(a->out);
    const int64_t n = end * a->dim;
    int64_t i = begin * a->dim;
    for (; i + VF <= n; i += VF) vf_store(out + i, silu_mul(vf_load(gate + i), vf_load(up + i)));
    if (i < n) vf_store_n(out + i, n - i, silu_mul(vf_load_n(gate + i, n - i), vf_load_n(up + i, n - i)));
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(swiglu) = {"swiglu", 1, swiglu_tasks, swiglu_run, NULL, true};
