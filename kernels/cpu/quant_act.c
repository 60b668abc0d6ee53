/* Activations to int8 in blocks of 32 with a scale each, or to bf16. A task is a row. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t quant_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_quant_act_args *)args)->n_rows;
}

/* With an infinity or NaN inside, the scale is not finite and q = 0, so that all products are NaN. */
static void quant_broken_block(const float *x, dlab_qact_block *out)
{
    float largest = 0;
    for (int i = 0; i < DLAB_QACT_BLOCK; i++)
        if (isnan(x[i]) || fabsf(x[i]) > largest) largest = fabsf(x[i]);
    memset(out, 0, sizeof *out);
    out->scale = largest / 127;
    out->scale_sum = out->scale * 0.0f;
}

static void quant_block(const float *x, dlab_qact_block *out)
{
    vf largest = vf_set1(0), broken = vf_set1(0);
    for (int i = 0; i < DLAB_QACT_BLOCK; i += VF) {
        vf v = vf_load(x + i);
        largest = vf_max(largest, vf_abs(v));
        broken = vf_add(broken, vf_sub(v, v)); /* NaN from NaN and infinity, which a maximum may hide */
    }
    if (vf_sum(broken) != 0) {
        quant_broken_block(x, out);
        return;
    }
    out->scale = vf_max_lane(largest) / 127;
    if (out->scale == 0) {
        memset(out, 0, sizeof *out);
        return;
    }
    for (int i = 0; i < DLAB_QACT_BLOCK; i += VF) {
        /* a subnormal scale is coarse: the quotient may pass 127 */
        const vf q = vf_div(vf_load(x + i), vf_set1(out->scale));
        vf_store_i8(out->q + i, vf_max(vf_set1(-127), vf_min(vf_set1(127), q)));
    }
    out->scale_sum = out->scale * (float)sum32_i8(out->q);
}

static void quant_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_quant_act_args *a = args;
    const int64_t n_blocks = a->k / DLAB_QACT_BLOCK;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)dlab_host_ptr(a->x) + r * a->k;
        if (a->to == DLAB_ACT_BF16) {
            uint16_t *y = (uint16_t *)dlab_host_ptr(a->y) + r * dlab_bf16_row(a->k);
            row_to_bf16(x, a->k, y);
            if (a->k % 2) y[a->k] = 0;
            continue;
        }
        dlab_qact_block *y = (dlab_qact_block *)dlab_host_ptr(a->y) + r * n_blocks;
        for (int64_t b = 0; b < n_blocks; b++) quant_block(x + b * DLAB_QACT_BLOCK, y + b);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(quant_act) = {"quant_act", 1, quant_tasks, quant_run, NULL, true};
