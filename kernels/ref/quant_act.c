#include <math.h>

#include "kernels/ref/ref.h"

/* In f32 throughout, since every device must give these very bits. A block that holds an infinity or NaN has a scale that
 * is not finite and q = 0, so that its products are NaN; one whose scale rounds to zero has q = 0. */
static dlab_qact_block quantize(const float *x)
{
    float amax = 0;
    for (int i = 0; i < DLAB_QACT_BLOCK; i++)
        if (isnan(x[i]) || fabsf(x[i]) > amax) amax = fabsf(x[i]);
    dlab_qact_block b = {.scale = amax / 127};
    int sum = 0;
    for (int i = 0; i < DLAB_QACT_BLOCK && isfinite(b.scale) && b.scale > 0; i++) {
        const float q = roundf(x[i] / b.scale);
        /* a subnormal scale is coarse: the quotient may pass 127 */
        b.q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        sum += b.q[i];
    }
    b.scale_sum = b.scale * (float)sum;
    return b;
}

static uint16_t *y_row(const dlab_quant_act_args *a, int64_t row)
{
    return (uint16_t *)dlab_host_ptr(a->y) + row * dlab_bf16_row(a->k);
}

static void round_row(const float *x, int64_t k, uint16_t *y)
{
    y[dlab_bf16_row(k) - 1] = 0; /* where k is odd it stays */
    for (int64_t i = 0; i < k; i++) y[i] = dlab_f32_to_bf16(x[i]);
}

void dlab_ref_quant_act(const void *args)
{
    const dlab_quant_act_args *a = args;
    const float *x = dlab_host_ptr(a->x);
    if (a->to == DLAB_ACT_BF16) {
        for (int64_t r = 0; r < a->n_rows; r++) round_row(x + r * a->k, a->k, y_row(a, r));
        return;
    }
    dlab_qact_block *y = dlab_host_ptr(a->y);
    const int64_t n_blocks = (int64_t)a->n_rows * a->k / DLAB_QACT_BLOCK;
    for (int64_t b = 0; b < n_blocks; b++) y[b] = quantize(x + b * DLAB_QACT_BLOCK);
}
