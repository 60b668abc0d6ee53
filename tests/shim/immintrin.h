/* The intrinsics that the CPU kernels use, in plain C: with this folder first on the include path, kernels of instruction
 * sets that a CPU lacks can still be run. Each does what Intel's Software Developer's Manual says of its instruction. One that
 * is missing is an implicit declaration, an error in the build of the shim; to add it is a line, in immintrin_lanes.h if all
 * widths have it, else below.
 *
 * FN(result, name, parameters, value)
 * LANES(result, name, parameters, type, value): lane i of the result, seen as a vector of the type
 * V(i8, 256): the type of 256 bits in lanes of int8; in immintrin_lanes.h T(i8) is that of the width at hand. */
#ifndef DLAB_TESTS_SHIM_IMMINTRIN_H
#define DLAB_TESTS_SHIM_IMMINTRIN_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

/* GCC's vectors need no flags: what the machine has no registers for is done in pieces. */
#define SHIM_TYPES(bits)                                                                                               \
    typedef float __m##bits __attribute__((vector_size(bits / 8), may_alias));                                         \
    typedef long long __m##bits##i __attribute__((vector_size(bits / 8), may_alias));                                  \
    typedef int8_t shim_i8_##bits __attribute__((vector_size(bits / 8)));                                              \
    typedef uint8_t shim_u8_##bits __attribute__((vector_size(bits / 8)));                                             \
    typedef int16_t shim_i16_##bits __attribute__((vector_size(bits / 8)));                                            \
    typedef uint16_t shim_u16_##bits __attribute__((vector_size(bits / 8)));                                           \
    typedef int32_t shim_i32_##bits __attribute__((vector_size(bits / 8)));                                            \
    typedef uint32_t shim_u32_##bits __attribute__((vector_size(bits / 8)));                                           \
    typedef uint64_t shim_u64_##bits __attribute__((vector_size(bits / 8)));
SHIM_TYPES(128)
SHIM_TYPES(256)
SHIM_TYPES(512)
typedef uint16_t __m512bh __attribute__((vector_size(64), may_alias));
typedef uint8_t __mmask8;
typedef uint16_t __mmask16;

#define _MM_FROUND_TO_NEAREST_INT 0
#define _MM_FROUND_NO_EXC         8
#define _CMP_ORD_Q                7
#define _CMP_LT_OQ                17
#define _CMP_NLT_UQ               21

/* ---- one lane ---- */

/* Whether a stands to b as a comparison's number says: a bit for each of less, equal, greater and unordered. */
static inline int shim_compare(float a, float b, int how)
{
    static const uint8_t holds[16] = {2, 1, 3, 8, 13, 14, 12, 7, 10, 9, 11, 0, 5, 6, 4, 15};
    const int is = a < b ? 1 : a == b ? 2 : a > b ? 4 : 8;
    return (holds[how & 15] & is) != 0;
}

static inline int8_t shim_sat_i8(int32_t v) { return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v); }
static inline uint8_t shim_sat_u8(int32_t v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }
static inline int16_t shim_sat_i16(int32_t v) { return (int16_t)(v < -32768 ? -32768 : v > 32767 ? 32767 : v); }
static inline uint16_t shim_sat_u16(int32_t v) { return (uint16_t)(v < 0 ? 0 : v > 65535 ? 65535 : v); }
/* NaN and what does not fit are the lowest number. */
static inline int32_t shim_to_i32(float whole)
{
    return whole >= -0x1p31f && whole < 0x1p31f ? (int32_t)whole : INT32_MIN;
}
/* NaN becomes a quiet one. */
static inline float shim_from_f16(uint16_t h)
{
    return dlab_f16_to_f32((h & 0x7c00) == 0x7c00 && (h & 0x3ff) ? (uint16_t)(h | 0x200) : h);
}
/* VDPBF16PS: the upper halves' product is added first, then the lower ones', each fused with its sum in f32 and rounded to
 * nearest even whatever MXCSR says; subnormal numbers are zeros, going in, in between and coming out. */
static inline float shim_flush(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static inline float shim_bf16(uint32_t bits)
{
    float v;
    bits <<= 16;
    memcpy(&v, &bits, sizeof v);
    return shim_flush(v);
}
static inline float shim_dpbf16(float sum, uint32_t a, uint32_t b)
{
    sum = shim_flush(fmaf(shim_bf16(a >> 16), shim_bf16(b >> 16), shim_flush(sum)));
    return shim_flush(fmaf(shim_bf16(a & 0xffff), shim_bf16(b & 0xffff), sum));
}

/* ---- all widths ---- */

#define SHIM_JOIN(a, b)  a##b
#define SHIM_PASTE(a, b) SHIM_JOIN(a, b)
#define V(lane, bits)    SHIM_PASTE(shim_##lane##_, bits)
#define COUNT(v)         ((int)(sizeof(v) / sizeof(v)[0]))
#define FN(result, name, params, value)                                                                                \
    static inline result name params { return value; }
/* The first n lanes; the others are 0. */
#define LANES_N(result, name, params, type, n, value)                                                                  \
    static inline result name params                                                                                   \
    {                                                                                                                  \
        type r = {0};                                                                                                  \
        for (int i = 0; i < (n); i++) r[i] = value;                                                                    \
        return (result)r;                                                                                              \
    }
#define LANES(result, name, params, type, value) LANES_N(result, name, params, type, COUNT(r), value)

/* clang-format off */
#define BITS   128
#define HALF   128
#define PREFIX _mm_
#define M      __mmask8
#include "immintrin_lanes.h"
#define BITS   256
#define HALF   128
#define PREFIX _mm256_
#define M      __mmask8
#include "immintrin_lanes.h"
#define BITS   512
#define HALF   256
#define PREFIX _mm512_
#define M      __mmask16
#include "immintrin_lanes.h"

/* ---- what only one width has ---- */

FN(float, _cvtsh_ss, (uint16_t h), shim_from_f16(h))
FN(float, _mm_cvtss_f32, (__m128 a), a[0])
FN(int, _mm_cvtsi128_si32, (__m128i a), ((V(i32, 128))a)[0])
FN(int, _mm_extract_epi16, (__m128i a, int n), ((V(u16, 128))a)[n])
LANES(__m128, _mm_max_ss, (__m128 a, __m128 b), __m128, i == 0 && !(a[0] > b[0]) ? b[0] : a[i])
LANES(__m128, _mm_movehl_ps, (__m128 a, __m128 b), __m128, i < 2 ? b[i + 2] : a[i])
LANES_N(__m128i, _mm_loadl_epi64, (const void *p), V(u8, 128), 8, ((const uint8_t *)p)[i])
static inline void _mm_storel_epi64(void *p, __m128i a) { memcpy(p, &a, 8); }
LANES(__m128i, _mm_setr_epi8, (char a, char b, char c, char d, char e, char f, char g, char h, char j, char k, char l,
      char m, char n, char o, char p, char q), V(i8, 128), ((char[]){a, b, c, d, e, f, g, h, j, k, l, m, n, o, p, q})[i])

LANES(__m128, _mm256_castps256_ps128, (__m256 a), __m128, a[i])
LANES(__m128, _mm256_extractf128_ps, (__m256 a, int n), __m128, a[4 * n + i])
LANES(__m128i, _mm256_castsi256_si128, (__m256i a), __m128i, a[i])
LANES(__m128i, _mm256_extracti128_si256, (__m256i a, int n), __m128i, a[2 * n + i])
LANES(__m256i, _mm256_set_m128i, (__m128i high, __m128i low), __m256i, i < 2 ? low[i] : high[i - 2])
LANES(__m256i, _mm256_broadcastsi128_si256, (__m128i a), __m256i, a[i % 2])
LANES(__m256, _mm512_castps512_ps256, (__m512 a), __m256, a[i])
LANES(__m256, _mm512_extractf32x8_ps, (__m512 a, int n), __m256, a[8 * n + i])

LANES(__m256i, _mm256_setr_epi32, (int a, int b, int c, int d, int e, int f, int g, int h), V(i32, 256),
      ((int[]){a, b, c, d, e, f, g, h})[i])
LANES(__m512i, _mm512_setr_epi32, (int a, int b, int c, int d, int e, int f, int g, int h, int j, int k, int l, int m,
      int n, int o, int p, int q), V(i32, 512), ((int[]){a, b, c, d, e, f, g, h, j, k, l, m, n, o, p, q})[i])
LANES(__m512, _mm512_setr_ps, (float a, float b, float c, float d, float e, float f, float g, float h, float j, float k,
      float l, float m, float n, float o, float p, float q), __m512,
      ((float[]){a, b, c, d, e, f, g, h, j, k, l, m, n, o, p, q})[i])

/* AVX2's masks are vectors, of which the highest bit of a lane counts. */
LANES(__m256, _mm256_cmp_ps, (__m256 a, __m256 b, int how), V(i32, 256), -shim_compare(a[i], b[i], how))
FN(__m256i, _mm256_cmpgt_epi32, (__m256i a, __m256i b), (__m256i)((V(i32, 256))a > (V(i32, 256))b))
LANES(__m256, _mm256_maskload_ps, (const float *p, __m256i m), __m256, ((V(i32, 256))m)[i] < 0 ? p[i] : 0)
static inline void _mm256_maskstore_ps(float *p, __m256i m, __m256 a)
{
    for (int i = 0; i < 8; i++)
        if (((V(i32, 256))m)[i] < 0) p[i] = a[i];
}
LANES(__m256, _mm256_blend_ps, (__m256 a, __m256 b, int n), __m256, n >> i & 1 ? b[i] : a[i])
/* Of each half four bits of n: which half of a or b, or nothing. */
static inline float shim_half_lane(__m256 a, __m256 b, int n, int i)
{
    if (n & 8) return 0;
    return n & 2 ? b[(n & 1) * 4 + i] : a[(n & 1) * 4 + i];
}
LANES(__m256, _mm256_permute2f128_ps, (__m256 a, __m256 b, int n), __m256, shim_half_lane(a, b, n >> i / 4 * 4, i % 4))
LANES(__m256, _mm256_permutevar8x32_ps, (__m256 a, __m256i n), __m256, a[((V(i32, 256))n)[i] & 7])
FN(__m256i, _mm256_dpbusd_avx_epi32, (__m256i sum, __m256i a, __m256i b), _mm256_dpbusd_epi32(sum, a, b))

LANES(__m512, _mm512_abs_ps, (__m512 a), __m512, fabsf(a[i]))
LANES(__m512, _mm512_shuffle_f32x4, (__m512 a, __m512 b, int n), __m512,
      i < 8 ? a[(n >> i / 4 * 2 & 3) * 4 + i % 4] : b[(n >> i / 4 * 2 & 3) * 4 + i % 4])
LANES(__m512, _mm512_permutexvar_ps, (__m512i n, __m512 a), __m512, a[((V(i32, 512))n)[i] & 15])
LANES(__m128i, _mm512_cvtepi32_epi8, (__m512i a), V(i8, 128), (int8_t)((V(i32, 512))a)[i])
LANES(__m128i, _mm512_cvtsepi32_epi8, (__m512i a), V(i8, 128), shim_sat_i8(((V(i32, 512))a)[i]))
LANES(__m512, _mm512_dpbf16_ps, (__m512 sum, __m512bh a, __m512bh b), __m512,
      shim_dpbf16(sum[i], ((V(u32, 512))a)[i], ((V(u32, 512))b)[i]))
/* Halves are compared, the upper one first. */
static inline float _mm512_reduce_max_ps(__m512 a)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++) a[i] = a[n + i] > a[i] ? a[n + i] : a[i];
    return a[0];
}
/* clang-format on */

#undef V
#undef COUNT
#undef FN
#undef LANES_N
#undef LANES

#endif
