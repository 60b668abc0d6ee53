/* New rows of K and V into the store, in its element types. A task is a row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int64_t kv_write_tasks(const void *args, int phase)
{
    (void)phase;
    return ((const dlab_kv_write_args *)args)->n_rows;
}

static void store_as(const float *x, int64_t n, dlab_dtype t, void *dst)
{
    uint16_t *half = dst;
    int64_t i = 0;
    switch (t) {
    case DLAB_F16:
        for (; i + VF <= n; i += VF) vf_store_f16(half + i, vf_load(x + i));
        for (; i < n; i++) half[i] = dlab_f32_to_f16(x[i]);
        break;
    case DLAB_BF16:
        for (; i < n; i++) half[i] = dlab_f32_to_bf16(x[i]);
        break;
    default:
        memcpy(dst, x, (size_t)n * sizeof *x);
        break;
    }
}

/* x [G, d] to the places of one token. */
static void write_heads(const float *x, const dlab_kv_view *kv, dlab_at base, int64_t slot, int64_t head_stride,
                        dlab_dtype t)
{
    if (slot < 0) return;
    char *dst = (char *)dlab_host_ptr(base) + slot;
    for (int g = 0; g < kv->n_kv_heads; g++, dst += head_stride, x += kv->head_dim) store_as(x, kv->head_dim, t, dst);
}

static void kv_write_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_kv_write_args *a = args;
    const dlab_kv_view *kv = &a->kv;
    const dlab_desc_row *rows = dlab_desc_rows(dlab_host_ptr(a->desc));
    const int64_t width = (int64_t)kv->n_kv_heads * kv->head_dim;
    for (int64_t r = begin; r < end; r++) {
        const float *k = (const float *)dlab_host_ptr(a->k) + r * width;
        const float *v = (const float *)dlab_host_ptr(a->v) + r * width;
        write_heads(k, kv, kv->k, rows[r].k_slot, kv->k_head_stride, kv->k_dtype);
        write_heads(v, kv, kv->v, rows[r].v_slot, kv->v_head_stride, kv->v_dtype);
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(kv_write) = {"kv_write", 1, kv_write_tasks, kv_write_run, NULL};
