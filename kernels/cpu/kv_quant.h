/* Values to the elements of the cache, with the f32 operations that kernels/op.h states, so that the bytes are the same on
 * every instruction set. */
#ifndef DLAB_KERNELS_CPU_KV_QUANT_H
#define DLAB_KERNELS_CPU_KV_QUANT_H

#include <float.h>

#include "kernels/cpu/simd.h"

#define KV_BLOCK 32 /* elements of U4 that share a scale and lie together */

/* Of the finite values: the largest, and the largest of their negatives, neither below 0. */
typedef struct {
    vf hi, lo;
} kv_range;

static inline kv_range kv_no_range(void) { return (kv_range){vf_set1(0), vf_set1(0)}; }

DLAB_INLINE void kv_range_add(kv_range *r, vf x)
{
    const vf minus = vf_sub(vf_set1(0), x), below = vf_sub(vf_set1(0), vf_abs(x));
    r->hi = vf_max(vf_zero_below(x, below, vf_set1(-FLT_MAX)), r->hi); /* in this order NaN is passed over */
    r->lo = vf_max(vf_zero_below(minus, below, vf_set1(-FLT_MAX)), r->lo);
}

static inline kv_range kv_range_of(kv_range r, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) kv_range_add(&r, vf_load(x + i));
    if (i < n) kv_range_add(&r, vf_load_n(x + i, n - i));
    return r;
}

/* What values that share a scale have in common. */
typedef struct {
    float inverse, zero; /* inverse 0: everything is stored as 0 */
    uint32_t word;       /* scale and zero point as they are stored */
} kv_scale;

static inline float kv_largest_code(dlab_dtype t) { return t == DLAB_U8 ? 255.0f : 15.0f; }

/* hi, lo: as in kv_range. */
static inline kv_scale kv_scale_of(float hi, float lo, dlab_dtype t)
{
    const float n = kv_largest_code(t), most = hi > lo ? hi : lo;
    const float step = t == DLAB_E4M3 ? most / 448 : t == DLAB_E5M2 ? most / 57344 : hi / n - -lo / n;
    kv_scale s = {0, 0, 0};
    if (step < FLT_MIN) return s;
    memcpy(&s.word, &step, sizeof step);
    s.word = (s.word + 255) & ~255u;
    float scale;
    memcpy(&scale, &s.word, sizeof scale);
    s.inverse = 1 / scale;
    if (t == DLAB_E4M3 || t == DLAB_E5M2) return s;
    float zero[VF];
    vf_store(zero, vf_round(vf_set1(lo * s.inverse)));
    s.zero = zero[0] > n ? n : zero[0];
    s.word |= (uint32_t)s.zero;
    return s;
}

static inline kv_scale kv_scale_of_range(kv_range r, dlab_dtype t)
{
    return kv_scale_of(vf_max_lane(r.hi), vf_max_lane(r.lo), t);
}

/* Codes 0 … n; infinities get to the ends, NaN to the zero point. */
DLAB_INLINE vf kv_code(vf x, vf inverse, vf zero, vf n)
{
    const vf steps = vf_round(vf_mul(vf_zero_nan(x), inverse));
    /* infinity times the inverse 0 is NaN: the maximum, in this order, makes 0 of it */
    return vf_min(n, vf_max(vf_add(steps, zero), vf_set1(0)));
}

static inline void kv_codes(const float *x, int64_t n, kv_scale s, dlab_dtype t, uint8_t *dst)
{
    const vf inverse = vf_set1(s.inverse), zero = vf_set1(s.zero), most = vf_set1(kv_largest_code(t));
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store_u8(dst + i, kv_code(vf_load(x + i), inverse, zero, most));
    if (i == n) return;
    uint8_t rest[VF];
    vf_store_u8(rest, kv_code(vf_load_n(x + i, n - i), inverse, zero, most));
    memcpy(dst + i, rest, (size_t)(n - i));
}

/* As dlab_f32_to_e4m3 and dlab_f32_to_e5m2 for numbers, without branches. bits: of the mantissa; least: f32's exponent of
 * the least normal number; most: the code of the largest. Below the least normal number the sum with `magic` rounds. */
DLAB_INLINE uint8_t kv_fp8(float x, const uint32_t bits, const uint32_t least, const float magic, const uint32_t most)
{
    uint32_t u, sum, base;
    memcpy(&u, &x, sizeof u);
    const uint32_t magnitude = u & 0x7fffffffu, shift = 23 - bits;
    const uint32_t rounded = (magnitude + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1)) >> shift;
    float small;
    memcpy(&small, &magnitude, sizeof small);
    small += magic;
    memcpy(&sum, &small, sizeof sum);
    memcpy(&base, &magic, sizeof base);
    const uint32_t code = magnitude < least << 23 ? sum - base : rounded - ((least - 1) << bits);
    return (uint8_t)((u >> 24 & 0x80u) | (code < most ? code : most));
}

static inline void kv_fp8s(const float *x, int64_t n, kv_scale s, dlab_dtype t, uint8_t *dst)
{
    if (s.inverse == 0) {
        memset(dst, 0, (size_t)n);
    } else if (t == DLAB_E4M3) {
        for (int64_t i = 0; i < n; i++)
            dst[i] = kv_fp8((x[i] != x[i] ? 0.0f : x[i]) * s.inverse, 3, 121, 0x1p14f, 0x7e);
    } else {
        for (int64_t i = 0; i < n; i++) dst[i] = kv_fp8((x[i] != x[i] ? 0.0f : x[i]) * s.inverse, 2, 113, 0x1p7f, 0x7b);
    }
}

/* Up to 32 values into one block of nibbles; what is left of it is 0. */
static inline void kv_nibbles(const float *x, int64_t n, kv_scale s, uint8_t *dst)
{
    uint8_t codes[KV_BLOCK] = {0};
    kv_codes(x, n, s, DLAB_U4, codes);
    for (int i = 0; i < 16; i++) dst[i] = (uint8_t)(codes[i] | codes[16 + i] << 4);
}

/* n values of one scale into their elements; of U4 at most a block. */
static inline void kv_quantize(const float *x, int64_t n, kv_scale s, dlab_dtype t, uint8_t *dst)
{
    if (t == DLAB_U8)
        kv_codes(x, n, s, t, dst);
    else if (t == DLAB_U4)
        kv_nibbles(x, n, s, dst);
    else
        kv_fp8s(x, n, s, t, dst);
}

static inline void kv_store_f16(const float *x, int64_t n, uint16_t *dst)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store_f16(dst + i, vf_load(x + i));
    for (; i < n; i++) dst[i] = dlab_f32_to_f16(x[i]);
}

#endif
