/* simd.h for AVX-512 F, BW, VL and DQ. */
#ifndef DLAB_KERNELS_CPU_SIMD_AVX512_H
#define DLAB_KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>

#define VF            16
#define SCORE_QUERIES 4 /* queries whose scores are made together: 4 × 4 sums in registers, of 32 */
#define VALUE_QUERIES 4
typedef __m512 vf;
typedef __m512i vi;

DLAB_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
DLAB_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
DLAB_INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
DLAB_INLINE __mmask16 lanes_below(int64_t n) { return (__mmask16)((1u << n) - 1); }
DLAB_INLINE vf vf_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(lanes_below(n), p); }
DLAB_INLINE void vf_store_n(float *p, int64_t n, vf v) { _mm512_mask_storeu_ps(p, lanes_below(n), v); }
DLAB_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
DLAB_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
DLAB_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
DLAB_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
DLAB_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
DLAB_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
DLAB_INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
DLAB_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* v, but 0 in lanes where x < limit */
DLAB_INLINE vf vf_zero_below(vf v, vf x, vf limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}
/* 2ⁿ, n in the low bits of t */
DLAB_INLINE vf vf_pow2_low_bits(vf t)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23));
}

/* v, but 0 where it is NaN */
DLAB_INLINE vf vf_zero_nan(vf v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v); }

DLAB_INLINE __m128 quarter_sum(vf v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
DLAB_INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    __m128 ab = _mm_hadd_ps(quarter_sum(a), quarter_sum(b)), cd = _mm_hadd_ps(quarter_sum(c), quarter_sum(d));
    _mm_storeu_ps(out, _mm_hadd_ps(ab, cd));
}
/* Many sums over lanes at once: vf_fold4 begins four, vf_fold ends VF of them, VF/4 results of vf_fold4 in order. */
DLAB_INLINE vf vf_fold4(vf a, vf b, vf c, vf d)
{
    vf ab = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
    vf cd = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, c, d), _mm512_shuffle_f32x4(c, d, 0x4e));
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}
DLAB_INLINE vf vf_add_pairs(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
DLAB_INLINE vf vf_fold(const vf *x)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vf sums = vf_add_pairs(vf_add_pairs(x[0], x[1]), vf_add_pairs(x[2], x[3])); /* quarter i: of each x the i-th */
    return _mm512_permutexvar_ps(order, sums);
}
DLAB_INLINE float vf_max_lane(vf v) { return _mm512_reduce_max_ps(v); }

DLAB_INLINE vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
DLAB_INLINE void vf_store_f16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
DLAB_INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
DLAB_INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
DLAB_INLINE vf vf_load_e5m2(const uint8_t *p)
{
    const __m128i order = _mm_setr_epi8(-1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7); /* −1: 0 */
    const __m256i upper = _mm256_set_m128i(_mm_add_epi8(order, _mm_set1_epi16(0x0800)), order);
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtph_ps(_mm256_shuffle_epi8(both, upper));
}
/* Divided by 256: the exponent is 8 less in f16. */
DLAB_INLINE vf vf_load_e4m3(const uint8_t *p)
{
    __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(w, _mm256_set1_epi16((short)0xbfff)));
}
/* Nibbles to nibble · scale + shift, of VF bytes the lower or the upper ones. A table of the 16 results is looked up. */
DLAB_INLINE vf nibble_values(float scale, float shift)
{
    const vf codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return vf_fma(codes, vf_set1(scale), vf_set1(shift));
}
DLAB_INLINE vf vf_load_nibbles_of(const uint8_t *p, int upper, float scale, float shift)
{
    const __m512i w = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_permutexvar_ps(upper ? _mm512_srli_epi32(w, 4) : w, nibble_values(scale, shift));
}
/* All 32 of a block, in order. */
DLAB_INLINE void vf_load_nibble_block(const uint8_t *p, float scale, float shift, vf *out)
{
    const __m512i w = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const vf values = nibble_values(scale, shift);
    out[0] = _mm512_permutexvar_ps(w, values);
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4), values);
}
/* Scales and zero points of the cache: the upper 24 bits of each word, and the lower 8. */
DLAB_INLINE void vf_load_scales(const void *p, vf *scale, vf *zero)
{
    const __m512i w = _mm512_loadu_si512(p);
    *scale = _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(255), w));
    *zero = _mm512_cvtepi32_ps(_mm512_and_si512(w, _mm512_set1_epi32(255)));
}
/* Of whole numbers 0 … 255. */
DLAB_INLINE void vf_store_u8(uint8_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
DLAB_INLINE float f16_bits_to_f32(uint16_t h) { return _cvtsh_ss(h); }
DLAB_INLINE vf vf_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
DLAB_INLINE void vf_load_nibbles(const uint8_t *p, vf *lo, vf *hi)
{
    __m512i w = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    *lo = _mm512_cvtepi32_ps(_mm512_and_si512(w, _mm512_set1_epi32(15)));
    *hi = _mm512_cvtepi32_ps(_mm512_srli_epi32(w, 4));
}
/* Rounds half away from zero: half less one unit is added, so that only a true half gets there. |v| ≤ 127. */
DLAB_INLINE void vf_store_i8(int8_t *p, vf v)
{
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN));
    vf half = _mm512_castsi512_ps(_mm512_or_si512(sign, _mm512_castps_si512(_mm512_set1_ps(0.49999997f))));
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(v, half))));
}

DLAB_INLINE vi vi_flip_sign_bits(vi v) { return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80)); }
DLAB_INLINE void vi_store_nibbles(uint8_t *lo, uint8_t *hi, vi v)
{
    const vi mask = _mm512_set1_epi8(15);
    _mm512_storeu_si512(lo, _mm512_and_si512(v, mask));
    _mm512_storeu_si512(hi, _mm512_and_si512(_mm512_srli_epi16(v, 4), mask));
}

DLAB_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
DLAB_INLINE void vi_store(void *p, vi v) { _mm512_storeu_si512(p, v); }
DLAB_INLINE vi vi_low_nibbles(vi v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
DLAB_INLINE vi vi_high_nibbles(vi v) { return vi_low_nibbles(_mm512_srli_epi16(v, 4)); }
/* One nibble, one signed byte, one bf16 of each lane, as f32; shift: where it begins. */
DLAB_INLINE vf vi_nibble(vi v, int shift)
{
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, (unsigned)shift), _mm512_set1_epi32(15)));
}
DLAB_INLINE vf vi_byte(vi v, int shift)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - shift)), 24));
}
DLAB_INLINE vf vi_low_bf16(vi v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
DLAB_INLINE vf vi_high_bf16(vi v) { return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(-65536))); }
#ifdef DLAB_BF16_PAIRS
/* sum + products of bf16 pairs w, one an output, with one pair of a row. Subnormal numbers count as zeros. */
DLAB_INLINE vf vf_dot_bf16(vf sum, vi w, const uint16_t *pair)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)_mm512_set1_epi32((int32_t)load_u32(pair)));
}
#endif
/* Sums of products of unsigned bytes w, four an output, with four int8 of one row. */
typedef vi va;
DLAB_INLINE va va_zero(void) { return _mm512_setzero_si512(); }
#ifdef DLAB_VNNI
DLAB_INLINE va va_dot(va sum, vi w, const int8_t *q)
{
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32((int32_t)load_u32(q)));
}
DLAB_INLINE vi va_sum(va sum) { return sum; }
#else
DLAB_INLINE va va_dot(va sum, vi w, const int8_t *q)
{
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, _mm512_set1_epi32((int32_t)load_u32(q))));
}
DLAB_INLINE vi va_sum(va sum) { return _mm512_madd_epi16(sum, _mm512_set1_epi16(1)); }
#endif
DLAB_INLINE vi vi_add_all(vi v, int32_t c) { return _mm512_add_epi32(v, _mm512_set1_epi32(c)); }
DLAB_INLINE vf vi_to_f32(vi v) { return _mm512_cvtepi32_ps(v); }
/* 16·hi + lo + c */
DLAB_INLINE vi vi_join_nibbles(vi hi, vi lo, int32_t c)
{
    return _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(hi, 4), lo), _mm512_set1_epi32(c));
}
DLAB_INLINE int32_t sum32_i8(const int8_t *x)
{
    __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi8((char)0x80));
    __m256i s = _mm256_sad_epu8(v, _mm256_setzero_si256());
    __m128i h = _mm_add_epi64(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return _mm_cvtsi128_si32(h) + _mm_extract_epi16(h, 4) - 32 * 128;
}

#endif
