#include "kernels/ref/ref.h"

static double input_at(const dlab_matmul_args *a, int64_t row, int64_t k)
{
    const int64_t i = row * a->w.k + k;
    if (!a->quantized) return (double)((const float *)dlab_host_ptr(a->x))[i];
    const dlab_qact_block *block = (const dlab_qact_block *)dlab_host_ptr(a->x) + i / DLAB_QACT_BLOCK;
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
