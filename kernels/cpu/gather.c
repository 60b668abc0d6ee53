/* The rows whose logits are wanted, copied. A task is a row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t gather_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_gather_args *)args)->n_logits;
}

static void gather_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_gather_args *a = args;
    const dlab_desc_logit *logits = dlab_desc_logits(dlab_host_ptr(a->desc)) + a->first;
    const float *x = dlab_host_ptr(a->x);
    float *out = dlab_host_ptr(a->out);
    for (int64_t i = begin; i < end; i++)
        memcpy(out + i * a->dim, x + (int64_t)logits[i].row * a->dim, (size_t)a->dim * sizeof *x);
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(gather) = {"gather", 1, gather_tasks, gather_run, NULL, true};
