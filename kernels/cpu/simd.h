/* A thin vector layer, so that each op has one body for every instruction set. VF is the number of f32 lanes: 16 with
 * AVX-512, 8 with AVX2, 4 in the plain variant (GCC vector extensions, any machine).
 *
 * Sums over lanes have one fixed shape: halves are added until four lanes are left, then (l0 + l1) + (l2 + l3).
 * The plain variant multiplies and adds in two roundings, the others fuse. */
#ifndef DLAB_KERNELS_CPU_SIMD_H
#define DLAB_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

#define DLAB_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define DLAB_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DLAB_UNROLL _Pragma("GCC unroll 16")
#endif

#define LINE_BYTES  64
#define FETCH_AHEAD 2048 /* bytes of a stream that memory is asked for ahead of their use */

/* Bytes of nibbles for one block of 32 weights of VF outputs: [8 steps][VF outputs][4 inputs], one byte each. Byte j of
 * step s is input 4s + j. All products of these with int8 activations add up exactly in 16 bits: 8·2·15·127 < 2¹⁵. */
#define NIBBLE_TILE_BYTES (32 * VF)

DLAB_INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if defined(DLAB_ISA_vnni) || defined(DLAB_ISA_avxvnni) || defined(DLAB_ISA_bf16)
#define DLAB_VNNI
#endif
#if defined(DLAB_ISA_bf16)
#define DLAB_BF16_PAIRS
#endif
#if defined(DLAB_ISA_avx512) || defined(DLAB_ISA_vnni) || defined(DLAB_ISA_bf16)
#include "kernels/cpu/simd_avx512.h"
#elif defined(DLAB_ISA_avx2) || defined(DLAB_ISA_avxvnni)
#include "kernels/cpu/simd_avx2.h"
#else
#include "kernels/cpu/simd_plain.h"
#endif

DLAB_INLINE float vf_sum(vf v)
{
    float out[4];
    vf_sum4(v, v, v, v, out);
    return out[0];
}

/* The nearest whole number, halves to even. |v| < 2²², or infinite, or NaN. */
DLAB_INLINE vf vf_round(vf v)
{
    const vf magic = vf_set1(12582912.0f); /* 1.5·2²³: sums with it have no place for fractions */
    return vf_sub(vf_add(v, magic), magic);
}

/* Element i on of an array of type t (F32, F16, BF16, or U8, E4M3, E5M2 without their scales; E4M3 divided by 256); t is a
 * constant where this is inlined. */
DLAB_INLINE vf vf_load_as(const void *p, int64_t i, dlab_dtype t)
{
    if (t == DLAB_F16) return vf_load_f16((const uint16_t *)p + i);
    if (t == DLAB_BF16) return vf_load_bf16((const uint16_t *)p + i);
    if (t == DLAB_U8) return vf_load_u8((const uint8_t *)p + i);
    if (t == DLAB_E4M3) return vf_load_e4m3((const uint8_t *)p + i);
    if (t == DLAB_E5M2) return vf_load_e5m2((const uint8_t *)p + i);
    return vf_load((const float *)p + i);
}

/* The first n < VF lanes, the others 0. */
DLAB_INLINE vf vf_load_n_as(const void *p, int64_t i, int64_t n, dlab_dtype t)
{
    uint16_t some[VF] = {0};
    if (t == DLAB_F32) return vf_load_n((const float *)p + i, n);
    const size_t size = t == DLAB_F16 || t == DLAB_BF16 ? 2 : 1;
    memcpy(some, (const char *)p + (size_t)i * size, (size_t)n * size);
    return vf_load_as(some, 0, t);
}

/* eˣ within 2 units in the last place where the result is a normal number; 0 below that, at most 2¹²⁷·√2 above; NaN
 * stays. Cody and Waite's reduction to |r| ≤ ln2/2, then the Taylor series to r⁷, whose rest is under 2⁻²⁷. */
DLAB_INLINE vf vf_exp(vf x)
{
    const float magic = 12582912.0f; /* 1.5·2²³: adding it leaves the nearest integer in the low bits */
    const vf lowest = vf_set1(-87.33f);
    vf c = vf_min(vf_set1(88.37f), vf_max(lowest, x)); /* operands in this order let NaN through */
    vf t = vf_fma(c, vf_set1(1.44269504f), vf_set1(magic));
    vf n = vf_sub(t, vf_set1(magic));
    vf r = vf_fma(n, vf_set1(-0.693359375f), c);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_fma(r, vf_set1(1.0f / 5040), vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_zero_below(vf_mul(p, vf_pow2_low_bits(t)), x, lowest);
}

/* Unpacks one row of k weights of any type to f32. Exact for all but Q4_1, which rounds once. */
DLAB_INLINE void row_unpack_block(const uint8_t *block, dlab_dtype t, float *dst)
{
    const vf d = vf_set1(f16_bits_to_f32((uint16_t)(block[0] | block[1] << 8)));
    const uint8_t *q = block + (t == DLAB_Q4_1 ? 4 : 2);
    if (t == DLAB_Q8_0) {
        for (int i = 0; i < 32; i += VF) vf_store(dst + i, vf_mul(vf_load_i8((const int8_t *)q + i), d));
        return;
    }
    vf m = t == DLAB_Q4_1 ? vf_set1(f16_bits_to_f32((uint16_t)(block[2] | block[3] << 8))) : vf_mul(d, vf_set1(-8.0f));
    for (int i = 0; i < 16; i += VF) {
        vf lo, hi;
        vf_load_nibbles(q + i, &lo, &hi);
        vf_store(dst + i, vf_fma(lo, d, m));
        vf_store(dst + 16 + i, vf_fma(hi, d, m));
    }
}

DLAB_INLINE void row_unpack_wide(const void *row, dlab_dtype t, int64_t k, float *dst)
{
    int64_t i = 0;
    for (; i + VF <= k; i += VF) vf_store(dst + i, vf_load_as(row, i, t));
    if (i < k) vf_store_n(dst + i, k - i, vf_load_n_as(row, i, k - i, t));
}

static inline void row_unpack(const void *row, dlab_dtype t, int64_t k, float *dst)
{
    const uint8_t *p = row;
    switch (t) {
    case DLAB_F16:
        row_unpack_wide(row, DLAB_F16, k, dst);
        break;
    case DLAB_BF16:
        row_unpack_wide(row, DLAB_BF16, k, dst);
        break;
    case DLAB_Q8_0:
        for (int64_t i = 0; i < k; i += 32, p += 34) row_unpack_block(p, DLAB_Q8_0, dst + i);
        break;
    case DLAB_Q4_0:
        for (int64_t i = 0; i < k; i += 32, p += 18) row_unpack_block(p, DLAB_Q4_0, dst + i);
        break;
    case DLAB_Q4_1:
        for (int64_t i = 0; i < k; i += 32, p += 20) row_unpack_block(p, DLAB_Q4_1, dst + i);
        break;
    case DLAB_F32:
    default:
        memcpy(dst, row, (size_t)k * sizeof(float));
        break;
    }
}

/* Rounds n values to nearest even, by their bits: the CPU's modes for subnormal numbers do not matter. NaN is made quiet. */
static inline void row_to_bf16(const float *x, int64_t n, uint16_t *dst)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        const uint32_t nan = u >> 16 | 0x40u, number = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
        dst[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : number);
    }
}

#endif
