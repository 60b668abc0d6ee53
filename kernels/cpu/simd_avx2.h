/* simd.h for AVX2 with FMA and F16C. */
#ifndef DLAB_KERNELS_CPU_SIMD_AVX2_H
#define DLAB_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>

#define VF            8
#define SCORE_QUERIES 3 /* queries whose scores are made together: 3 × 4 sums in registers, of 16 */
#define VALUE_QUERIES 2
typedef __m256 vf;
typedef __m256i vi;

DLAB_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
DLAB_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
DLAB_INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
DLAB_INLINE __m256i lanes_below(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
DLAB_INLINE vf vf_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, lanes_below(n)); }
DLAB_INLINE void vf_store_n(float *p, int64_t n, vf v) { _mm256_maskstore_ps(p, lanes_below(n), v); }
DLAB_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
DLAB_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
DLAB_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
DLAB_INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
DLAB_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
DLAB_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
DLAB_INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
DLAB_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
/* v, but 0 in lanes where x < limit */
DLAB_INLINE vf vf_zero_below(vf v, vf x, vf limit) { return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v); }
/* 2ⁿ, n in the low bits of t */
DLAB_INLINE vf vf_pow2_low_bits(vf t)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127)), 23));
}

/* v, but 0 where it is NaN */
DLAB_INLINE vf vf_zero_nan(vf v) { return _mm256_and_ps(_mm256_cmp_ps(v, v, _CMP_ORD_Q), v); }

DLAB_INLINE __m128 half_sum(vf v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }
DLAB_INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    __m128 ab = _mm_hadd_ps(half_sum(a), half_sum(b)), cd = _mm_hadd_ps(half_sum(c), half_sum(d));
    _mm_storeu_ps(out, _mm_hadd_ps(ab, cd));
}
DLAB_INLINE vf vf_add_pairs(vf a, vf b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
/* Many sums over lanes at once: vf_fold4 begins four, vf_fold ends VF of them, VF/4 results of vf_fold4 in order. */
DLAB_INLINE vf vf_fold4(vf a, vf b, vf c, vf d)
{
    vf ab = _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
    vf cd = _mm256_add_ps(_mm256_blend_ps(c, d, 0xf0), _mm256_permute2f128_ps(c, d, 0x21));
    return vf_add_pairs(ab, cd);
}
DLAB_INLINE vf vf_fold(const vf *x)
{
    vf sums = vf_add_pairs(x[0], x[1]); /* lower half: a and c of each x, upper half: b and d */
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
DLAB_INLINE float vf_max_lane(vf v)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

DLAB_INLINE vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
DLAB_INLINE void vf_store_f16(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
DLAB_INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
DLAB_INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
DLAB_INLINE vf vf_load_e5m2(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)p)));
}
/* Divided by 256: the exponent is 8 less in f16. */
DLAB_INLINE vf vf_load_e4m3(const uint8_t *p)
{
    __m128i w = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(w, _mm_set1_epi16((short)0xbfff)));
}
/* Nibbles to nibble · scale + shift, of VF bytes the lower or the upper ones. */
DLAB_INLINE vf nibble_values(__m256i w, int upper, vf scale, vf shift)
{
    w = upper ? _mm256_srli_epi32(w, 4) : _mm256_and_si256(w, _mm256_set1_epi32(15));
    return vf_fma(_mm256_cvtepi32_ps(w), scale, shift);
}
DLAB_INLINE vf vf_load_nibbles_of(const uint8_t *p, int upper, float scale, float shift)
{
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return nibble_values(w, upper, vf_set1(scale), vf_set1(shift));
}
/* All 32 of a block, in order. */
DLAB_INLINE void vf_load_nibble_block(const uint8_t *p, float scale, float shift, vf *out)
{
    const vf a = vf_set1(scale), b = vf_set1(shift);
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)));
    out[0] = nibble_values(w, 0, a, b);
    out[1] = nibble_values(x, 0, a, b);
    out[2] = nibble_values(w, 1, a, b);
    out[3] = nibble_values(x, 1, a, b);
}
/* Scales and zero points of the cache: the upper 24 bits of each word, and the lower 8. */
DLAB_INLINE void vf_load_scales(const void *p, vf *scale, vf *zero)
{
    const __m256i w = _mm256_loadu_si256(p);
    *scale = _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_set1_epi32(255), w));
    *zero = _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32(255)));
}
/* Of whole numbers 0 … 255. */
DLAB_INLINE void vf_store_u8(uint8_t *p, vf v)
{
    __m256i q = _mm256_cvtps_epi32(v);
    __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(w, w));
}
DLAB_INLINE float f16_bits_to_f32(uint16_t h) { return _cvtsh_ss(h); }
DLAB_INLINE vf vf_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
DLAB_INLINE void vf_load_nibbles(const uint8_t *p, vf *lo, vf *hi)
{
    __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    *lo = _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32(15)));
    *hi = _mm256_cvtepi32_ps(_mm256_srli_epi32(w, 4));
}
/* Rounds half away from zero: half less one unit is added, so that only a true half gets there. |v| ≤ 127. */
DLAB_INLINE void vf_store_i8(int8_t *p, vf v)
{
    vf half = _mm256_or_ps(_mm256_and_ps(v, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(0.49999997f));
    __m256i q = _mm256_cvttps_epi32(_mm256_add_ps(v, half));
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(w, w));
}

DLAB_INLINE vi vi_flip_sign_bits(vi v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)); }
DLAB_INLINE void vi_store_nibbles(uint8_t *lo, uint8_t *hi, vi v)
{
    const vi mask = _mm256_set1_epi8(15);
    _mm256_storeu_si256((__m256i *)lo, _mm256_and_si256(v, mask));
    _mm256_storeu_si256((__m256i *)hi, _mm256_and_si256(_mm256_srli_epi16(v, 4), mask));
}

DLAB_INLINE vi vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
DLAB_INLINE void vi_store(void *p, vi v) { _mm256_storeu_si256((__m256i *)p, v); }
DLAB_INLINE vi vi_low_nibbles(vi v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
DLAB_INLINE vi vi_high_nibbles(vi v) { return vi_low_nibbles(_mm256_srli_epi16(v, 4)); }
/* One nibble, one signed byte, one bf16 of each lane, as f32; shift: where it begins. */
DLAB_INLINE vf vi_nibble(vi v, int shift)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, shift), _mm256_set1_epi32(15)));
}
DLAB_INLINE vf vi_byte(vi v, int shift)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 24 - shift), 24));
}
DLAB_INLINE vf vi_low_bf16(vi v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
DLAB_INLINE vf vi_high_bf16(vi v) { return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(-65536))); }
/* Sums of products of unsigned bytes w, four an output, with four int8 of one row. */
typedef vi va;
DLAB_INLINE va va_zero(void) { return _mm256_setzero_si256(); }
#ifdef DLAB_VNNI
DLAB_INLINE va va_dot(va sum, vi w, const int8_t *q)
{
    return _mm256_dpbusd_avx_epi32(sum, w, _mm256_set1_epi32((int32_t)load_u32(q)));
}
DLAB_INLINE vi va_sum(va sum) { return sum; }
#else
DLAB_INLINE va va_dot(va sum, vi w, const int8_t *q)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, _mm256_set1_epi32((int32_t)load_u32(q))));
}
DLAB_INLINE vi va_sum(va sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
#endif
DLAB_INLINE vi vi_add_all(vi v, int32_t c) { return _mm256_add_epi32(v, _mm256_set1_epi32(c)); }
DLAB_INLINE vf vi_to_f32(vi v) { return _mm256_cvtepi32_ps(v); }
/* 16·hi + lo + c */
DLAB_INLINE vi vi_join_nibbles(vi hi, vi lo, int32_t c)
{
    return _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(hi, 4), lo), _mm256_set1_epi32(c));
}
DLAB_INLINE int32_t sum32_i8(const int8_t *x)
{
    __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi8((char)0x80));
    __m256i s = _mm256_sad_epu8(v, _mm256_setzero_si256());
    __m128i h = _mm_add_epi64(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return _mm_cvtsi128_si32(h) + _mm_extract_epi16(h, 4) - 32 * 128;
}

#endif
