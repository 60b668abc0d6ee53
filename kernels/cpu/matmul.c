/* x · wᵀ of packed weights. A task is 16 outputs by up to 256 rows. A few rows read a packed tile as it is; for more, the
 * tile is widened once into scratch, then met by all of them. Two ways: f32 products (matmul_float.h), and exact int8
 * products of blocks (matmul_int8.h). */
#include "kernels/cpu/matmul_float.h"
#include "kernels/cpu/matmul_int8.h"

#define TASK_OUTPUTS 16
#define TASK_ROWS    256

static int64_t row_chunks(const dlab_matmul_args *a) { return dlab_ceil_div(a->n_rows, TASK_ROWS); }

static int64_t matmul_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_matmul_args *a = args;
    return dlab_ceil_div(a->w.n, TASK_OUTPUTS) * row_chunks(a);
}

static size_t matmul_scratch(const void *args)
{
    const dlab_matmul_args *a = args;
    return a->quantized ? q_tile_bytes(a->w.k) : (size_t)a->w.k * VF * sizeof(float);
}

static void int8_rows(const dlab_matmul_args *a, const uint8_t *p, int64_t begin, int64_t end, tile_out out,
                      uint8_t *scratch)
{
    const int64_t n_blocks = a->w.k / DLAB_QACT_BLOCK;
    const dlab_qact_block *x = (const dlab_qact_block *)dlab_host_ptr(a->x) + begin * n_blocks;
    const bool wide = end - begin > STREAM_ROWS;
    const q_tile tile = q_tile_at(scratch, a->w.k);
    if (wide) q_tile_widen(&a->w, p, tile);
    for (int64_t r = begin; r < end; r += ROWS_TOGETHER) {
        const int rows = (int)dlab_min_i64(ROWS_TOGETHER, end - r);
        if (wide)
            q_tile_dot(&tile, a->w.dtype, x, n_blocks, rows, &out);
        else
            q_tile_stream(p, a->w.dtype, x, n_blocks, rows, &out);
        x += rows * n_blocks;
        out.y += rows * out.stride;
    }
}

static void float_rows_all(const dlab_matmul_args *a, const uint8_t *p, int64_t begin, int64_t end, tile_out out,
                           float *scratch)
{
    const float *x = (const float *)dlab_host_ptr(a->x) + begin * a->w.k;
    dlab_dtype type = a->w.dtype;
    if (end - begin > ROWS_TOGETHER && type != DLAB_F32) {
        float_tile_widen(p, type, a->w.k, scratch);
        p = (const uint8_t *)scratch;
        type = DLAB_F32;
    }
    for (int64_t r = begin; r < end; r += ROWS_TOGETHER) {
        const int rows = (int)dlab_min_i64(ROWS_TOGETHER, end - r);
        float_tile_dot(p, type, a->w.k, x, rows, &out);
        x += rows * a->w.k;
        out.y += rows * out.stride;
    }
}

static void matmul_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_matmul_args *a = args;
    const int64_t chunks = row_chunks(a);
    const size_t tile_bytes = dlab_pack_tile_bytes(a->w.dtype, a->w.k, VF);
    for (int64_t t = begin; t < end; t++) {
        const int64_t first = t / chunks * TASK_OUTPUTS, row = t % chunks * TASK_ROWS;
        const int64_t last = dlab_min_i64(row + TASK_ROWS, a->n_rows);
        for (int64_t o = first; o < first + TASK_OUTPUTS && o < a->w.n; o += VF) {
            const uint8_t *p = (const uint8_t *)dlab_host_ptr(a->w.at) + (size_t)(o / VF) * tile_bytes;
            const tile_out out = {.y = (float *)dlab_host_ptr(a->y) + row * a->w.n + o,
                                  .stride = a->w.n,
                                  .n = dlab_min_i64(VF, a->w.n - o),
                                  .accumulate = a->accumulate};
            if (a->quantized)
                int8_rows(a, p, row, last, out, scratch);
            else
                float_rows_all(a, p, row, last, out, scratch);
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(matmul) = {"matmul", 1, matmul_tasks, matmul_run, matmul_scratch, false};
