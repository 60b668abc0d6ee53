/* x · wᵀ of packed weights. A task is 16 outputs by up to 256 rows. A few rows read a packed tile as it is; for more, the
 * tile is widened once into scratch, then met by all of them. Three ways: f32 products (matmul_float.h), exact int8 products
 * of blocks (matmul_int8.h), and, where there are instructions for them, products of pairs of bf16 (matmul_bf16.h); elsewhere
 * bf16 inputs become f32, as many rows at a time as share the loads of a tile. */
#include "kernels/cpu/matmul_bf16.h"
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
    if (a->input == DLAB_ACT_INT8) return q_tile_bytes(a->w.k);
    return (size_t)a->w.k * (VF + (a->input == DLAB_ACT_BF16 ? ROWS_TOGETHER : 0)) * sizeof(float);
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

#ifdef DLAB_BF16_PAIRS
static void bf16_rows_all(const dlab_matmul_args *a, const uint8_t *p, int64_t begin, int64_t end, tile_out out)
{
    const int64_t stride = dlab_bf16_row(a->w.k);
    const uint16_t *x = (const uint16_t *)dlab_host_ptr(a->x) + begin * stride;
    for (int64_t r = begin; r < end; r += ROWS_TOGETHER) {
        const int rows = (int)dlab_min_i64(ROWS_TOGETHER, end - r);
        bf16_tile_dot(p, a->w.k, x, rows, &out);
        x += rows * stride;
        out.y += rows * out.stride;
    }
}
#endif

/* Rows from `row` on; those of bf16 become f32 in `wide`. */
static const float *float_inputs(const dlab_matmul_args *a, int64_t row, int rows, float *wide)
{
    const int64_t k = a->w.k, stride = dlab_bf16_row(k);
    if (a->input == DLAB_ACT_F32) return (const float *)dlab_host_ptr(a->x) + row * k;
    const uint16_t *x = (const uint16_t *)dlab_host_ptr(a->x) + row * stride;
    for (int r = 0; r < rows; r++) row_unpack(x + r * stride, DLAB_BF16, k, wide + r * k);
    return wide;
}

static void float_rows_all(const dlab_matmul_args *a, const uint8_t *p, int64_t begin, int64_t end, tile_out out,
                           float *scratch)
{
    float *wide = scratch + a->w.k * VF;
    dlab_dtype type = a->w.dtype;
    if (end - begin > ROWS_TOGETHER && type != DLAB_F32) {
        float_tile_widen(p, type, a->w.k, scratch);
        p = (const uint8_t *)scratch;
        type = DLAB_F32;
    }
    for (int64_t r = begin; r < end; r += ROWS_TOGETHER) {
        const int rows = (int)dlab_min_i64(ROWS_TOGETHER, end - r);
        float_tile_dot(p, type, a->w.k, float_inputs(a, r, rows, wide), rows, &out);
        out.y += rows * out.stride;
    }
}

static void tile_rows(const dlab_matmul_args *a, const uint8_t *p, int64_t begin, int64_t end, tile_out out,
                      void *scratch)
{
    switch (a->input) {
    case DLAB_ACT_INT8:
        int8_rows(a, p, begin, end, out, scratch);
        break;
#ifdef DLAB_BF16_PAIRS
    case DLAB_ACT_BF16:
        bf16_rows_all(a, p, begin, end, out);
        break;
#endif
    default:
        float_rows_all(a, p, begin, end, out, scratch);
        break;
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
            tile_rows(a, p, row, last, out, scratch);
        }
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(matmul) = {"matmul", 1, matmul_tasks, matmul_run, matmul_scratch, false};
