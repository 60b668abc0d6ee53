/* What one thread can do at most: loops that do nothing but read, multiply and add, or multiply int8 or bf16 and add, with
 * the instructions that the products of this instruction set are made of. */
#include "kernels/cpu/cpu_peak.h"
#include "kernels/cpu/simd.h"

#define CHAINS    10 /* sums that do not wait for each other: what latency and two units ask for, and registers hold */
#define FMA_STEPS 256
#define DOT_STEPS 256 /* of sums in 16 bits, that still fit: 256 · 15 · 4 < 2¹⁵ */
#define DOT_TILE  8

/* The compiler has to believe that p may be another one now: nothing read through it is known from the time before. */
#define FORGET(p) __asm__ volatile("" : "+r"(p))

DLAB_INLINE float sum_all(const vf *sum)
{
    vf all = sum[0];
    for (int i = 1; i < CHAINS; i++) all = vf_add(all, sum[i]);
    return vf_sum(all);
}

/* ---- reading ---- */

DLAB_INLINE float read_all(const char *p, size_t bytes, const bool ahead)
{
    enum { STEP = 8 * VF * (int)sizeof(float) };
    vf sum[8];
    DLAB_UNROLL
    for (int i = 0; i < 8; i++) sum[i] = vf_set1(0);
    for (size_t at = 0; at + STEP <= bytes; at += STEP) {
        if (ahead)
            for (size_t line = 0; line < STEP; line += LINE_BYTES) __builtin_prefetch(p + at + FETCH_AHEAD + line);
        DLAB_UNROLL
        for (int i = 0; i < 8; i++)
            sum[i] = vf_add(sum[i], vf_load((const float *)(const void *)(p + at) + (ptrdiff_t)i * VF));
    }
    vf all = sum[0];
    for (int i = 1; i < 8; i++) all = vf_add(all, sum[i]);
    return vf_sum(all);
}

static double peak_read(const void *memory, size_t bytes, int64_t rounds, bool ahead, float *sink)
{
    const char *p = memory;
    float sum = 0;
    for (int64_t r = 0; r < rounds; r++) {
        FORGET(p);
        sum += ahead ? read_all(p, bytes, true) : read_all(p, bytes, false);
    }
    *sink = sum;
    return (double)rounds * (double)bytes;
}

/* ---- f32 ---- */

static double peak_f32(int64_t rounds, float *sink)
{
    const float factors[2] = {0.5f, 1.0f}; /* sums go to 2, and never leave the normal numbers */
    const float *f = factors;
    vf sum[CHAINS];
    FORGET(f);
    const vf a = vf_set1(f[0]), b = vf_set1(f[1]);
    DLAB_UNROLL
    for (int i = 0; i < CHAINS; i++) sum[i] = vf_set1((float)i);
    for (int64_t r = 0; r < rounds * FMA_STEPS; r++) {
        DLAB_UNROLL
        for (int i = 0; i < CHAINS; i++) sum[i] = vf_fma(sum[i], a, b);
    }
    *sink = sum_all(sum);
    return (double)rounds * FMA_STEPS * CHAINS * VF * 2;
}

/* ---- bf16 ---- */

#ifdef DLAB_BF16_PAIRS
/* Each step adds 0.75 to every output, exactly as long as anybody looks at it. */
static double peak_bf16(int64_t rounds, float *sink)
{
    uint16_t weights[2 * VF], inputs[2] = {0x3f80, 0x3f80}; /* 1, 1 */
    const uint16_t *w = weights, *x = inputs;
    vf sum[CHAINS];
    for (int i = 0; i < 2 * VF; i++) weights[i] = i % 2 ? 0x3f00 : 0x3e80; /* 0.5, 0.25 */
    FORGET(w);
    FORGET(x);
    const vi pairs = vi_load((const uint8_t *)w);
    DLAB_UNROLL
    for (int i = 0; i < CHAINS; i++) sum[i] = vf_set1((float)i);
    for (int64_t r = 0; r < rounds * FMA_STEPS; r++) {
        DLAB_UNROLL
        for (int i = 0; i < CHAINS; i++) sum[i] = vf_dot_bf16(sum[i], pairs, x);
    }
    *sink = sum_all(sum);
    return (double)rounds * FMA_STEPS * CHAINS * (2 * VF) * 2;
}
#else
#define peak_bf16 peak_f32 /* what the products do with bf16 here: they widen it */
#endif

/* ---- int8 ---- */

/* Two registers of weights meet five of activations, so that no product is made twice. */
DLAB_INLINE void dot_tile(const uint8_t *tile, const int8_t *q, va *sum)
{
    DLAB_UNROLL
    for (int s = 0; s < DOT_TILE; s += 2) {
        const vi w0 = vi_load(tile + 4 * VF * s), w1 = vi_load(tile + 4 * VF * (s + 1));
        DLAB_UNROLL
        for (int i = 0; i < CHAINS / 2; i++) {
            sum[2 * i] = va_dot(sum[2 * i], w0, q + 4 * i);
            sum[2 * i + 1] = va_dot(sum[2 * i + 1], w1, q + 4 * i);
        }
    }
}

static double peak_int8(int64_t rounds, float *sink)
{
    uint8_t tile[4 * VF * DOT_TILE];
    const int8_t q[2 * CHAINS] = {1, -2, 3, -4, 2, -3, 4, -1, 3, -4, 1, -2, 4, -1, 2, -3, -1, 2, -3, 4};
    const uint8_t *p = tile;
    float total = 0;
    for (size_t i = 0; i < sizeof tile; i++) tile[i] = (uint8_t)(i * 7 % 16);
    for (int64_t r = 0; r < rounds; r++) {
        va sum[CHAINS];
        DLAB_UNROLL
        for (int i = 0; i < CHAINS; i++) sum[i] = va_zero();
        for (int s = 0; s < 2 * DOT_STEPS; s += DOT_TILE) {
            FORGET(p);
            dot_tile(p, q, sum);
        }
        vf all[CHAINS];
        for (int i = 0; i < CHAINS; i++) all[i] = vi_to_f32(va_sum(sum[i]));
        total += sum_all(all);
    }
    *sink = total;
    return (double)rounds * DOT_STEPS * CHAINS * (4 * VF) * 2;
}

const dlab_cpu_peaks DLAB_CPU_KERNEL(peak) = {peak_read, peak_f32, peak_int8, peak_bf16};
