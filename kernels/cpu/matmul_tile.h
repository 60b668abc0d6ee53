/* What products of a tile of VF outputs with several rows have in common. */
#ifndef DLAB_KERNELS_CPU_MATMUL_TILE_H
#define DLAB_KERNELS_CPU_MATMUL_TILE_H

#include "kernels/cpu/cpu_pack.h"
#include "kernels/cpu/simd.h"

/* Rows that share the loads of a tile: as many sums as there are registers for. */
#if VF >= 16
#define ROWS_TOGETHER 8
#else
#define ROWS_TOGETHER 4
#endif
/* So few rows read packed weights as they are; for more a tile is widened first. */
#define STREAM_ROWS (2 * ROWS_TOGETHER)

/* WITH_ROWS(rows, f(…, n, …)): f with n = rows, 1 … ROWS_TOGETHER, as a constant. Each of the cases is compiled. */
#define ROWS_CASE(count, ...)                                                                                          \
    case count: {                                                                                                      \
        enum { n = count };                                                                                            \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }
#define ROWS_CASES_4(...)                                                                                              \
    ROWS_CASE(1, __VA_ARGS__) ROWS_CASE(2, __VA_ARGS__) ROWS_CASE(3, __VA_ARGS__) ROWS_CASE(4, __VA_ARGS__)
#if ROWS_TOGETHER == 8
#define ROWS_CASES(...)                                                                                                \
    ROWS_CASES_4(__VA_ARGS__)                                                                                          \
    ROWS_CASE(5, __VA_ARGS__) ROWS_CASE(6, __VA_ARGS__) ROWS_CASE(7, __VA_ARGS__) ROWS_CASE(8, __VA_ARGS__)
#else
#define ROWS_CASES(...) ROWS_CASES_4(__VA_ARGS__)
#endif
#define WITH_ROWS(rows, ...)                                                                                           \
    do {                                                                                                               \
        switch (rows) {                                                                                                \
            ROWS_CASES(__VA_ARGS__)                                                                                    \
        }                                                                                                              \
    } while (0)

/* Where a tile's results belong. */
typedef struct {
    float *y;       /* of the first row */
    int64_t stride; /* floats from row to row */
    int64_t n;      /* outputs, at most VF */
    bool accumulate;
} tile_out;

DLAB_INLINE void tile_put(const tile_out *o, int64_t row, vf v)
{
    float *y = o->y + row * o->stride;
    if (o->n == VF) {
        vf_store(y, o->accumulate ? vf_add(vf_load(y), v) : v);
        return;
    }
    vf_store_n(y, o->n, o->accumulate ? vf_add(vf_load_n(y, o->n), v) : v);
}

/* A packed block of 32 inputs of VF outputs: scales d, what is added to the products with them (Q4_1's minima; Q4_0: −8·d;
 * Q8_0: nothing, 0), and where the quants begin. */
typedef struct {
    vf d, m;
    const uint8_t *quants;
} tile_block;

DLAB_INLINE tile_block tile_block_at(const uint8_t *p, const dlab_dtype type)
{
    tile_block b = {.d = vf_load_f16((const uint16_t *)(const void *)p), .m = vf_set1(0), .quants = p + 2 * VF};
    if (type == DLAB_Q4_0) b.m = vf_mul(b.d, vf_set1(-8));
    if (type == DLAB_Q4_1) {
        b.m = vf_load_f16((const uint16_t *)(const void *)b.quants);
        b.quants += 2 * VF;
    }
    return b;
}

/* Asks for what follows a packed block. */
DLAB_INLINE void tile_fetch(const uint8_t *p, int64_t bytes)
{
    for (int64_t line = 0; line < bytes; line += LINE_BYTES) __builtin_prefetch(p + FETCH_AHEAD + line);
}

#endif
