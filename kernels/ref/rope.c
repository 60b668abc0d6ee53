#include "kernels/ref/ref.h"

void dlab_ref_rope(const void *args)
{
    const dlab_rope_args *a = args;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    const int64_t half = a->rot_dim / 2;
    for (int64_t r = 0; r < a->n_rows; r++) {
        const float *turns = (const float *)dlab_host_ptr(a->table) + rows[r].pos * half * 2;
        for (int64_t h = 0; h < a->n_heads; h++) {
            float *x = (float *)dlab_host_ptr(a->x) + (r * a->n_heads + h) * a->head_dim;
            for (int64_t i = 0; i < half; i++) {
                float *first = a->norm ? &x[2 * i] : &x[i];
                float *second = a->norm ? &x[2 * i + 1] : &x[i + half];
                const double u = (double)*first, v = (double)*second;
                const double c = (double)turns[2 * i], s = (double)turns[2 * i + 1];
                *first = (float)(u * c - v * s);
                *second = (float)(u * s + v * c);
            }
        }
    }
}
