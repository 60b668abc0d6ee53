#include <assert.h>
#include <math.h>

#include "kernels/ref/ref.h"

/* Element (i, j) of the n × n matrix is (−1)^(number of bits that i and j have in common) / √n. */
static double element(int32_t n, int32_t i, int32_t j)
{
    return (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1) / sqrt(n);
}

static void multiply(float *x, int32_t n)
{
    double in[DLAB_REF_MAX_HEAD_DIM];
    assert(n <= DLAB_REF_MAX_HEAD_DIM);
    for (int32_t i = 0; i < n; i++) in[i] = (double)x[i];
    for (int32_t i = 0; i < n; i++) {
        double sum = 0;
        for (int32_t j = 0; j < n; j++) sum += element(n, i, j) * in[j];
        x[i] = (float)sum;
    }
}

void dlab_ref_hadamard(const void *args)
{
    const dlab_hadamard_args *a = args;
    int32_t n = 1;
    while (a->head_dim % (2 * n) == 0) n *= 2;
    float *x = dlab_host_ptr(a->x);
    const int64_t blocks = (int64_t)a->n_rows * a->n_heads * (a->head_dim / n);
    for (int64_t b = 0; b < blocks; b++) multiply(x + b * n, n);
}
