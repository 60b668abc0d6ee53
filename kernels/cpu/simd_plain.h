/* simd.h without instructions of its own: GCC's vector extensions for f32, loops for the rest. */
#ifndef DLAB_KERNELS_CPU_SIMD_PLAIN_H
#define DLAB_KERNELS_CPU_SIMD_PLAIN_H

#define VF            4
#define SCORE_QUERIES 2
#define VALUE_QUERIES 2
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

DLAB_INLINE vf vf_set1(float x) { return (vf){x, x, x, x}; }
DLAB_INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
DLAB_INLINE void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
DLAB_INLINE vf vf_load_n(const float *p, int64_t n)
{
    vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}
DLAB_INLINE void vf_store_n(float *p, int64_t n, vf v) { memcpy(p, &v, (size_t)n * sizeof(float)); }
DLAB_INLINE vf vf_add(vf a, vf b) { return a + b; }
DLAB_INLINE vf vf_sub(vf a, vf b) { return a - b; }
DLAB_INLINE vf vf_mul(vf a, vf b) { return a * b; }
DLAB_INLINE vf vf_div(vf a, vf b) { return a / b; }
DLAB_INLINE vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
DLAB_INLINE vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
DLAB_INLINE vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }
DLAB_INLINE vf vf_abs(vf a) { return (vf)((vi)a & INT32_MAX); }
DLAB_INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
/* v, but 0 in lanes where x < limit */
DLAB_INLINE vf vf_zero_below(vf v, vf x, vf limit) { return (vf)((vi)v & ~(x < limit)); }
/* 2ⁿ, n in the low bits of t */
DLAB_INLINE vf vf_pow2_low_bits(vf t)
{
    typedef uint32_t vu __attribute__((vector_size(16)));
    return (vf)(((vu)t + 127u) << 23);
}

/* v, but 0 where it is NaN */
DLAB_INLINE vf vf_zero_nan(vf v) { return (vf)((vi)v & (((vi)v & INT32_MAX) <= 0x7f800000)); }

DLAB_INLINE void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    out[0] = (a[0] + a[1]) + (a[2] + a[3]);
    out[1] = (b[0] + b[1]) + (b[2] + b[3]);
    out[2] = (c[0] + c[1]) + (c[2] + c[3]);
    out[3] = (d[0] + d[1]) + (d[2] + d[3]);
}
/* Many sums over lanes at once: vf_fold4 begins four, vf_fold ends VF of them, VF/4 results of vf_fold4 in order. */
DLAB_INLINE vf vf_fold4(vf a, vf b, vf c, vf d)
{
    return (vf){(a[0] + a[1]) + (a[2] + a[3]), (b[0] + b[1]) + (b[2] + b[3]), (c[0] + c[1]) + (c[2] + c[3]),
                (d[0] + d[1]) + (d[2] + d[3])};
}
DLAB_INLINE vf vf_fold(const vf *x) { return x[0]; }
DLAB_INLINE float vf_max_lane(vf v)
{
    float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

DLAB_INLINE vf vf_load_f16(const uint16_t *p)
{
    return (vf){dlab_f16_to_f32(p[0]), dlab_f16_to_f32(p[1]), dlab_f16_to_f32(p[2]), dlab_f16_to_f32(p[3])};
}
DLAB_INLINE void vf_store_f16(uint16_t *p, vf v)
{
    for (int i = 0; i < VF; i++) p[i] = dlab_f32_to_f16(v[i]);
}
DLAB_INLINE vf vf_load_bf16(const uint16_t *p) { return (vf)((vi){p[0], p[1], p[2], p[3]} << 16); }
DLAB_INLINE vf vf_load_u8(const uint8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }
DLAB_INLINE vf vf_load_e5m2(const uint8_t *p)
{
    return (vf){dlab_e5m2_to_f32(p[0]), dlab_e5m2_to_f32(p[1]), dlab_e5m2_to_f32(p[2]), dlab_e5m2_to_f32(p[3])};
}
/* Divided by 256, as the others have it. */
DLAB_INLINE vf vf_load_e4m3(const uint8_t *p)
{
    return (vf){dlab_e4m3_to_f32(p[0]), dlab_e4m3_to_f32(p[1]), dlab_e4m3_to_f32(p[2]), dlab_e4m3_to_f32(p[3])} *
           0x1p-8f;
}
/* Nibbles to nibble · scale + shift, of VF bytes the lower or the upper ones. */
DLAB_INLINE vf vf_load_nibbles_of(const uint8_t *p, int upper, float scale, float shift)
{
    const int down = upper ? 4 : 0;
    const vf q = {(float)(p[0] >> down & 15), (float)(p[1] >> down & 15), (float)(p[2] >> down & 15),
                  (float)(p[3] >> down & 15)};
    return q * scale + shift;
}
/* All 32 of a block, in order. */
DLAB_INLINE void vf_load_nibble_block(const uint8_t *p, float scale, float shift, vf *out)
{
    for (int i = 0; i < 8; i++) out[i] = vf_load_nibbles_of(p + i % 4 * 4, i >= 4, scale, shift);
}
/* Scales and zero points of the cache: the upper 24 bits of each word, and the lower 8. */
DLAB_INLINE void vf_load_scales(const void *p, vf *scale, vf *zero)
{
    vi w;
    memcpy(&w, p, sizeof w);
    *scale = (vf)(w & ~255);
    *zero = __builtin_convertvector(w & 255, vf);
}
/* Of whole numbers 0 … 255. */
DLAB_INLINE void vf_store_u8(uint8_t *p, vf v)
{
    for (int i = 0; i < VF; i++) p[i] = (uint8_t)v[i];
}
DLAB_INLINE float f16_bits_to_f32(uint16_t h) { return dlab_f16_to_f32(h); }
DLAB_INLINE vf vf_load_i8(const int8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }
DLAB_INLINE void vf_load_nibbles(const uint8_t *p, vf *lo, vf *hi)
{
    *lo = (vf){(float)(p[0] & 15), (float)(p[1] & 15), (float)(p[2] & 15), (float)(p[3] & 15)};
    *hi = (vf){(float)(p[0] >> 4), (float)(p[1] >> 4), (float)(p[2] >> 4), (float)(p[3] >> 4)};
}
/* Rounds half away from zero: half less one unit is added, so that only a true half gets there. |v| ≤ 127. */
DLAB_INLINE void vf_store_i8(int8_t *p, vf v)
{
    for (int i = 0; i < VF; i++) p[i] = (int8_t)(v[i] + (v[i] < 0 ? -0.49999997f : 0.49999997f));
}

DLAB_INLINE vi vi_flip_sign_bits(vi v)
{
    const int32_t flip = (int32_t)0x80808080u;
    return v ^ (vi) { flip, flip, flip, flip };
}
DLAB_INLINE void vi_store_nibbles(uint8_t *lo, uint8_t *hi, vi v)
{
    vi a = v & 0x0f0f0f0f, b = (v >> 4) & 0x0f0f0f0f;
    memcpy(lo, &a, sizeof a);
    memcpy(hi, &b, sizeof b);
}

DLAB_INLINE vi vi_load(const void *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
DLAB_INLINE void vi_store(void *p, vi v) { memcpy(p, &v, sizeof v); }
DLAB_INLINE vi vi_low_nibbles(vi v) { return v & 0x0f0f0f0f; }
DLAB_INLINE vi vi_high_nibbles(vi v) { return (v >> 4) & 0x0f0f0f0f; }
/* One nibble, one signed byte, one bf16 of each lane, as f32; shift: where it begins. */
DLAB_INLINE vf vi_nibble(vi v, int shift) { return __builtin_convertvector((v >> shift) & 15, vf); }
DLAB_INLINE vf vi_byte(vi v, int shift) { return __builtin_convertvector((v << (24 - shift)) >> 24, vf); }
DLAB_INLINE vf vi_low_bf16(vi v) { return (vf)(v << 16); }
DLAB_INLINE vf vi_high_bf16(vi v) { return (vf)(v & -65536); }
/* Sums of products of unsigned bytes w ≤ 15, four an output, with four int8 of one row. */
typedef int16_t words8 __attribute__((vector_size(16)));
typedef struct {
    words8 a, b; /* outputs 0 and 1, 2 and 3 */
} va;
DLAB_INLINE va va_zero(void) { return (va){{0}, {0}}; }
DLAB_INLINE va va_dot(va sum, vi w, const int8_t *q)
{
    typedef uint8_t bytes8 __attribute__((vector_size(8)));
    typedef int8_t signed8 __attribute__((vector_size(8)));
    bytes8 low, high;
    memcpy(&low, &w, sizeof low);
    memcpy(&high, (const char *)&w + sizeof low, sizeof high);
    const signed8 x = {q[0], q[1], q[2], q[3], q[0], q[1], q[2], q[3]};
    const words8 v = __builtin_convertvector(x, words8);
    sum.a += __builtin_convertvector(low, words8) * v;
    sum.b += __builtin_convertvector(high, words8) * v;
    return sum;
}
DLAB_INLINE vi va_sum(va s)
{
    return (vi){s.a[0] + s.a[1] + s.a[2] + s.a[3], s.a[4] + s.a[5] + s.a[6] + s.a[7], s.b[0] + s.b[1] + s.b[2] + s.b[3],
                s.b[4] + s.b[5] + s.b[6] + s.b[7]};
}
DLAB_INLINE vf vi_to_f32(vi v) { return __builtin_convertvector(v, vf); }
/* 16·hi + lo + c */
DLAB_INLINE vi vi_join_nibbles(vi hi, vi lo, int32_t c) { return hi * 16 + lo + c; }
DLAB_INLINE int32_t sum32_i8(const int8_t *x)
{
    int32_t sum = 0;
    for (int i = 0; i < 32; i++) sum += x[i];
    return sum;
}

#endif
