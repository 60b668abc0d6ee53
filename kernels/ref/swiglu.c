#include <math.h>

#include "kernels/ref/ref.h"

void dlab_ref_swiglu(const void *args)
{
    const dlab_swiglu_args *a = args;
    const float *gate = dlab_host_ptr(a->gate), *up = dlab_host_ptr(a->up);
    float *out = dlab_host_ptr(a->out);
    const int64_t n = (int64_t)a->n_rows * a->dim;
    for (int64_t i = 0; i < n; i++) {
        const double g = (double)gate[i];
        out[i] = (float)(g / (1 + exp(-g)) * (double)up[i]);
    }
}
