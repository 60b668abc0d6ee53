#include "kernels/ref/ref.h"

/* rows' values [G, d] into the layer at `slot` */
static void write_row(const float *values, void *layer, int64_t slot, int64_t head_stride, dlab_dtype dtype,
                      const dlab_kv_view *kv)
{
    if (slot < 0) return;
    for (int64_t g = 0; g < kv->n_kv_heads; g++) {
        char *place = (char *)layer + slot + g * head_stride;
        for (int64_t i = 0; i < kv->head_dim; i++)
            dlab_ref_put_element(place, dtype, i, (double)values[g * kv->head_dim + i]);
    }
}

void dlab_ref_kv_write(const void *args)
{
    const dlab_kv_write_args *a = args;
    const dlab_kv_view *kv = &a->kv;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    const int64_t width = (int64_t)kv->n_kv_heads * kv->head_dim;
    const float *k = dlab_host_ptr(a->k), *v = dlab_host_ptr(a->v);
    for (int64_t r = 0; r < a->n_rows; r++) {
        write_row(k + r * width, dlab_host_ptr(kv->k), rows[r].k_slot, kv->k_head_stride, kv->k_dtype, kv);
        write_row(v + r * width, dlab_host_ptr(kv->v), rows[r].v_slot, kv->v_head_stride, kv->v_dtype, kv);
    }
}
