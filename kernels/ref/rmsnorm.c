#include <math.h>

#include "kernels/ref/ref.h"

void dlab_ref_rmsnorm(const void *args)
{
    const dlab_rmsnorm_args *a = args;
    const float *w = dlab_host_ptr(a->w);
    for (int64_t r = 0; r < a->n_rows; r++) {
        const float *x = (const float *)dlab_host_ptr(a->x) + r * a->dim;
        float *y = (float *)dlab_host_ptr(a->y) + r * a->dim;
        double squares = 0;
        for (int64_t i = 0; i < a->dim; i++) squares += (double)x[i] * (double)x[i];
        if (a->watch.buf.ptr) {
            int32_t *seen = (int32_t *)dlab_host_ptr(a->watch) + r;
            if (!isfinite((float)(squares / a->dim)))
                *seen = 1; /* as f32: what the model computes with */
            else if (a->watch_first)
                *seen = 0;
        }
        const double rms = sqrt(squares / a->dim + (double)a->eps);
        for (int64_t i = 0; i < a->dim; i++) y[i] = (float)((double)x[i] / rms * (double)w[i]);
    }
}
