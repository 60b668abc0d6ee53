#include "kernels/cpu/cpu_pack.h"

#include <string.h>

static int64_t pack_tasks(const void *args, int phase)
{
    (void)phase;
    const dlab_pack_args *a = args;
    return dlab_ceil_div(a->to.n, a->to.layout);
}

/* Block b of the outputs first … first + lanes − 1, those past the last as zeros. */
static void pack_block(const dlab_pack_args *a, const uint8_t *from, int64_t first, int64_t b, uint8_t *to)
{
    const int64_t lanes = a->to.layout, block = dlab_dtype_block_bytes(a->from.dtype);
    const size_t row = dlab_dtype_bytes(a->from.dtype, a->from.k);
    const int64_t heads = a->from.dtype == DLAB_Q4_1 ? 2 : 1, groups = (block - 2 * heads) / 4;
    for (int64_t o = 0; o < lanes; o++) {
        static const uint8_t nothing[34];
        const bool past = first + o >= a->from.n;
        const uint8_t *p = past ? nothing : from + (size_t)(first + o) * row + (size_t)(b * block);
        for (int64_t h = 0; h < heads; h++) memcpy(to + 2 * (h * lanes + o), p + 2 * h, 2);
        uint8_t *q = to + 2 * heads * lanes + 4 * o;
        for (int64_t s = 0; s < groups; s++) memcpy(q + 4 * lanes * s, p + 2 * heads + 4 * s, 4);
    }
}

static void pack_run(const void *args, int phase, int64_t begin, int64_t end, void *scratch)
{
    (void)phase, (void)scratch;
    const dlab_pack_args *a = args;
    const int64_t lanes = a->to.layout, n_blocks = a->from.k / 32;
    const uint8_t *from = dlab_host_ptr(a->from.at);
    uint8_t *to =
        (uint8_t *)dlab_host_ptr(a->to.at) + (size_t)begin * dlab_pack_tile_bytes(a->to.dtype, a->to.k, lanes);
    for (int64_t t = begin; t < end; t++) {
        for (int64_t b = 0; b < n_blocks; b++) {
            pack_block(a, from, t * lanes, b, to);
            to += dlab_pack_block_bytes(a->to.dtype, lanes);
        }
    }
}

const dlab_cpu_kernel dlab_cpu_pack_kernel = {"pack", 1, pack_tasks, pack_run, NULL};
