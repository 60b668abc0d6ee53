/* What products of a tile of VF outputs with several rows have in common. */
#ifndef DLAB_KERNELS_CPU_MATMUL_TILE_H
#define DLAB_KERNELS_CPU_MATMUL_TILE_H

#include "kernels/cpu/cpu_pack.h"
#include "kernels/cpu/simd.h"

/* Rows that share the loads of a tile: as many sums as there are registers for. Each of the cases is compiled. */
#if VF >= 16
#define ROWS_TOGETHER        8
#define TILE_ROW_CASES(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#else
#define ROWS_TOGETHER        4
#define TILE_ROW_CASES(CASE) CASE(1) CASE(2) CASE(3) CASE(4)
#endif
#define STREAM_ROWS                                                                                                    \
    (2 * ROWS_TOGETHER)  /* so few rows read packed weights as they are; for more a tile is widened first */
#define FETCH_AHEAD 2048 /* bytes of a packed stream that memory is asked for ahead of their use */

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

#endif
