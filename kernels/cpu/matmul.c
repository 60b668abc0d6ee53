/* x · wᵀ. A task is 16 outputs by up to 64 rows; its weights are unpacked once, then met by all its rows. Two ways:
 * f32 products (dot.h), and exact int8 products of blocks (matmul_int8.h). */
#include "kernels/cpu/cpu_pack.h"
#include "kernels/cpu/matmul_int8.h"

#define TILE_OUTPUTS 16
#define TILE_ROWS    64

static int64_t row_chunks(const dlab_matmul_args *a) { return dlab_ceil_div(a->n_rows, TILE_ROWS); }

static int64_t matmul_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_matmul_args *a = args;
    return dlab_ceil_div(a->w.n, TILE_OUTPUTS) * row_chunks(a);
}

static size_t matmul_scratch(const void *args)
{
    const dlab_matmul_args *a = args;
    if (a->quantized) return TILE_OUTPUTS / VF * q_tile_bytes(a->w.k);
    return (size_t)TILE_OUTPUTS * (size_t)a->w.k * sizeof(float);
}

static void put(float *y, const float *v, int64_t n, bool accumulate)
{
    for (int64_t i = 0; i < n; i++) y[i] = accumulate ? y[i] + v[i] : v[i];
}

/* ---- f32 ---- */

typedef struct {
    const void *row[TILE_OUTPUTS]; /* f32 rows of the tile; past the last output, the last again */
} f32_tile;

static void f32_tile_fill(const dlab_matmul_args *a, int64_t first, float *scratch, f32_tile *tile)
{
    const size_t row_bytes = dlab_dtype_bytes(a->w.dtype, a->w.k);
    const int64_t n = dlab_min_i64(TILE_OUTPUTS, a->w.n - first);
    for (int64_t c = 0; c < TILE_OUTPUTS; c++) {
        if (c >= n) {
            tile->row[c] = tile->row[n - 1];
            continue;
        }
        const char *row = (const char *)dlab_host_ptr(a->w.at) + (size_t)(first + c) * row_bytes;
        tile->row[c] = row;
        if (a->w.dtype == DLAB_F32) continue;
        row_unpack(row, a->w.dtype, a->w.k, scratch + c * a->w.k);
        tile->row[c] = scratch + c * a->w.k;
    }
}

static void f32_rows(const dlab_matmul_args *a, const f32_tile *tile, int64_t first, int64_t begin, int64_t end)
{
    const int64_t n = dlab_min_i64(TILE_OUTPUTS, a->w.n - first);
    const float *x[DOT_ROWS];
    float out[DOT_ROWS * 4];
    for (int64_t r = begin; r < end; r += DOT_ROWS) {
        const int rows = (int)dlab_min_i64(DOT_ROWS, end - r);
        for (int i = 0; i < rows; i++) x[i] = (const float *)dlab_host_ptr(a->x) + (r + i) * a->w.k;
        for (int64_t c = 0; c < n; c += 4) {
            dot_rows(x, tile->row + c, a->w.k, rows, DLAB_F32, out);
            for (int i = 0; i < rows; i++) {
                float *y = (float *)dlab_host_ptr(a->y) + (r + i) * a->w.n + first + c;
                put(y, out + 4 * i, dlab_min_i64(4, n - c), a->accumulate);
            }
        }
    }
}

/* ---- int8 ---- */

static const uint8_t *packed_tile(const dlab_matmul_args *a, int64_t first)
{
    return (const uint8_t *)dlab_host_ptr(a->w.at) +
           (size_t)(first / VF) * dlab_pack_tile_bytes(a->w.dtype, a->w.k, VF);
}

static void q_tiles_fill(const dlab_matmul_args *a, int64_t first, uint8_t *scratch)
{
    for (int64_t c = 0; c < TILE_OUTPUTS && first + c < a->w.n; c += VF) {
        const q_tile tile = q_tile_at(scratch, a->w.k);
        if (a->w.layout)
            q_tile_widen(&a->w, packed_tile(a, first + c), tile);
        else
            q_tile_fill(&a->w, dlab_host_ptr(a->w.at), first + c, tile);
        scratch += q_tile_bytes(a->w.k);
    }
}

static void q_stream(const dlab_matmul_args *a, int64_t first, int64_t begin, int64_t end)
{
    const int64_t n_blocks = a->w.k / DLAB_QACT_BLOCK;
    const dlab_qact_block *x = (const dlab_qact_block *)dlab_host_ptr(a->x) + begin * n_blocks;
    float out[Q_STREAM_ROWS * VF];
    for (int64_t c = first; c < first + TILE_OUTPUTS && c < a->w.n; c += VF) {
        q_tile_stream(packed_tile(a, c), a->w.dtype, x, n_blocks, (int)(end - begin), out);
        for (int64_t r = begin; r < end; r++) {
            float *y = (float *)dlab_host_ptr(a->y) + r * a->w.n + c;
            put(y, out + (int64_t)VF * (r - begin), dlab_min_i64(VF, a->w.n - c), a->accumulate);
        }
    }
}

static void q_rows(const dlab_matmul_args *a, uint8_t *scratch, int64_t first, int64_t begin, int64_t end)
{
    const int64_t n_blocks = a->w.k / DLAB_QACT_BLOCK;
    float out[Q_ROWS * VF];
    for (int64_t c = first; c < first + TILE_OUTPUTS && c < a->w.n; c += VF) {
        const q_tile tile = q_tile_at(scratch, a->w.k);
        for (int64_t r = begin; r < end; r += Q_ROWS) {
            const int rows = (int)dlab_min_i64(Q_ROWS, end - r);
            const dlab_qact_block *x = (const dlab_qact_block *)dlab_host_ptr(a->x) + r * n_blocks;
            q_tile_dot(&tile, a->w.dtype, x, n_blocks, rows, out);
            for (int i = 0; i < rows; i++) {
                float *y = (float *)dlab_host_ptr(a->y) + (r + i) * a->w.n + c;
                put(y, out + (int64_t)VF * i, dlab_min_i64(VF, a->w.n - c), a->accumulate);
            }
        }
        scratch += q_tile_bytes(a->w.k);
    }
}

static void matmul_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase;
    const dlab_matmul_args *a = args;
    const int64_t chunks = row_chunks(a);
    int64_t filled = -1;
    f32_tile tile;
    for (int64_t t = begin; t < end; t++) {
        const int64_t first = t / chunks * TILE_OUTPUTS, row = t % chunks * TILE_ROWS;
        const int64_t last = dlab_min_i64(row + TILE_ROWS, a->n_rows);
        if (a->quantized && a->w.layout && last - row <= Q_STREAM_ROWS) {
            q_stream(a, first, row, last);
            continue;
        }
        if (a->quantized) {
            if (filled != first) q_tiles_fill(a, first, scratch);
            q_rows(a, scratch, first, row, last);
        } else {
            if (filled != first) f32_tile_fill(a, first, scratch, &tile);
            f32_rows(a, &tile, first, row, last);
        }
        filled = first;
    }
}

const dlab_cpu_kernel DLAB_CPU_KERNEL(matmul) = {"matmul", 1, matmul_tasks, matmul_run, matmul_scratch};
