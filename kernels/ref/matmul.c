#include "kernels/ref/ref.h"

static double input_at(const dlab_matmul_args *a, int64_t row, int64_t k)
{
    const void *x = dlab_host_ptr(a->x);
    const int64_t i = row * a->w.k + k;
    if (a->input == DLAB_ACT_F32) return (double)((const float *)x)[i];
    if (a->input == DLAB_ACT_BF16) return dlab_ref_element(x, DLAB_BF16, row * dlab_bf16_row(a->w.k) + k);
    const dlab_qact_block *block = (const dlab_qact_block *)x + i / DLAB_QACT_BLOCK;
    return (double)block->scale * block->q[i % DLAB_QACT_BLOCK];
}

void dlab_ref_matmul(const void *args)
{
    const dlab_matmul_args *a = args;
    float *y = dlab_host_ptr(a->y);
    for (int64_t r = 0; r < a->n_rows; r++) {
        for (int64_t n = 0; n < a->w.n; n++) {
            double sum = a->accumulate ? (double)y[r * a->w.n + n] : 0;
            for (int64_t k = 0; k < a->w.k; k++) sum += input_at(a, r, k) * dlab_ref_weight(&a->w, n, k);
            y[r * a->w.n + n] = (float)sum;
        }
    }
}
