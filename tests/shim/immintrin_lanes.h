/* The intrinsics that all widths have alike: included by immintrin.h once a width, with BITS, what names begin with (PREFIX),
 * the bits of half the width, but at least 128 (HALF), and a mask of 32-bit lanes (M). */
/* clang-format off */
#define F         SHIM_PASTE(__m, BITS)
#define I         SHIM_PASTE(F, i)
#define H         SHIM_PASTE(SHIM_PASTE(__m, HALF), i)
#define T(lane)   V(lane, BITS)
#define HT(lane)  V(lane, HALF)
#define P(name)   SHIM_PASTE(PREFIX, name)
#define PSI(name) SHIM_PASTE(P(name), SHIM_PASTE(_si, BITS))

/* ---- f32 ---- */
FN(F, P(set1_ps), (float x), x - (F){0}) /* −0 stays −0 */
FN(F, P(add_ps), (F a, F b), a + b)
FN(F, P(sub_ps), (F a, F b), a - b)
FN(F, P(mul_ps), (F a, F b), a * b)
FN(F, P(div_ps), (F a, F b), a / b)
LANES(F, P(fmadd_ps), (F a, F b, F c), F, fmaf(a[i], b[i], c[i]))
LANES(F, P(max_ps), (F a, F b), F, a[i] > b[i] ? a[i] : b[i])
LANES(F, P(min_ps), (F a, F b), F, a[i] < b[i] ? a[i] : b[i])
FN(F, P(and_ps), (F a, F b), (F)((I)a & (I)b))
FN(F, P(andnot_ps), (F a, F b), (F)(~(I)a & (I)b))
FN(F, P(or_ps), (F a, F b), (F)((I)a | (I)b))
LANES(F, P(movehdup_ps), (F a), F, a[i | 1])
LANES(F, P(hadd_ps), (F a, F b), F,
      i % 4 < 2 ? a[i / 4 * 4 + i % 2 * 2] + a[i / 4 * 4 + i % 2 * 2 + 1]
                : b[i / 4 * 4 + i % 2 * 2] + b[i / 4 * 4 + i % 2 * 2 + 1])
LANES(F, P(shuffle_ps), (F a, F b, int n), F,
      i % 4 < 2 ? a[i / 4 * 4 + (n >> i % 4 * 2 & 3)] : b[i / 4 * 4 + (n >> i % 4 * 2 & 3)])
static inline M P(cmp_ps_mask)(F a, F b, int how)
{
    M m = 0;
    for (int i = 0; i < COUNT(a); i++) m |= (M)(shim_compare(a[i], b[i], how) << i);
    return m;
}
LANES(F, P(mask_blend_ps), (M m, F a, F b), F, m >> i & 1 ? b[i] : a[i])
LANES(F, P(maskz_mov_ps), (M m, F a), F, m >> i & 1 ? a[i] : 0)
LANES(F, P(maskz_loadu_ps), (M m, const float *p), F, m >> i & 1 ? p[i] : 0)
static inline void P(mask_storeu_ps)(float *p, M m, F a)
{
    for (int i = 0; i < COUNT(a); i++)
        if (m >> i & 1) p[i] = a[i];
}

/* ---- loads and stores of any alignment, casts, conversions ---- */
static inline F P(loadu_ps)(const void *p)
{
    F a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline I PSI(loadu)(const void *p)
{
    I a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline void P(storeu_ps)(void *p, F a) { memcpy(p, &a, sizeof a); }
static inline void PSI(storeu)(void *p, I a) { memcpy(p, &a, sizeof a); }
FN(I, PSI(castps), (F a), (I)a)
FN(F, P(SHIM_PASTE(SHIM_PASTE(castsi, BITS), _ps)), (I a), (F)a)
LANES(F, P(cvtepi32_ps), (I a), F, (float)((T(i32))a)[i])
LANES(I, P(cvtps_epi32), (F a), T(i32), shim_to_i32(rintf(a[i])))
LANES(I, P(cvttps_epi32), (F a), T(i32), shim_to_i32(truncf(a[i])))
LANES(I, P(cvtepi8_epi32), (__m128i a), T(i32), ((V(i8, 128))a)[i])
LANES(I, P(cvtepu8_epi32), (__m128i a), T(i32), ((V(u8, 128))a)[i])
LANES(I, P(cvtepi8_epi16), (H a), T(i16), ((HT(i8))a)[i])
LANES(I, P(cvtepu16_epi32), (H a), T(i32), ((HT(u16))a)[i])
LANES(F, P(cvtph_ps), (H a), F, shim_from_f16(((HT(u16))a)[i]))
LANES_N(H, P(cvtps_ph), (F a, int how), HT(u16), COUNT(a), ((void)how, dlab_f32_to_f16(a[i]))) /* to nearest even */

/* ---- integers ---- */
FN(I, PSI(setzero), (void), (I){0})
FN(I, P(set1_epi8), (char x), (I)((T(i8)){0} + (int8_t)x))
FN(I, P(set1_epi16), (short x), (I)((T(i16)){0} + x))
FN(I, P(set1_epi32), (int x), (I)((T(i32)){0} + x))
FN(I, PSI(and), (I a, I b), a & b)
FN(I, PSI(andnot), (I a, I b), ~a & b)
FN(I, PSI(or), (I a, I b), a | b)
FN(I, PSI(xor), (I a, I b), a ^ b)
FN(I, P(add_epi8), (I a, I b), (I)((T(u8))a + (T(u8))b))
FN(I, P(add_epi16), (I a, I b), (I)((T(u16))a + (T(u16))b))
FN(I, P(add_epi32), (I a, I b), (I)((T(u32))a + (T(u32))b))
FN(I, P(add_epi64), (I a, I b), (I)((T(u64))a + (T(u64))b))
FN(I, P(slli_epi16), (I a, int n), (I)((T(u16))a << n))
FN(I, P(slli_epi32), (I a, int n), (I)((T(u32))a << n))
FN(I, P(srli_epi16), (I a, int n), (I)((T(u16))a >> n))
FN(I, P(srli_epi32), (I a, int n), (I)((T(u32))a >> n))
FN(I, P(srai_epi32), (I a, int n), (I)((T(i32))a >> n))
/* a's bytes have no sign, b's have one; the sum of two saturates. */
LANES(I, P(maddubs_epi16), (I a, I b), T(i16),
      shim_sat_i16(((T(u8))a)[2 * i] * ((T(i8))b)[2 * i] + ((T(u8))a)[2 * i + 1] * ((T(i8))b)[2 * i + 1]))
LANES(I, P(madd_epi16), (I a, I b), T(u32),
      (uint32_t)(((T(i16))a)[2 * i] * ((T(i16))b)[2 * i]) + (uint32_t)(((T(i16))a)[2 * i + 1] * ((T(i16))b)[2 * i + 1]))
/* Four products a lane; as above, but nothing saturates. */
LANES(I, P(dpbusd_epi32), (I sum, I a, I b), T(u32), ((T(u32))sum)[i] +
      (uint32_t)(((T(u8))a)[4 * i] * ((T(i8))b)[4 * i] + ((T(u8))a)[4 * i + 1] * ((T(i8))b)[4 * i + 1] +
                 ((T(u8))a)[4 * i + 2] * ((T(i8))b)[4 * i + 2] + ((T(u8))a)[4 * i + 3] * ((T(i8))b)[4 * i + 3]))
static inline I P(sad_epu8)(I a, I b)
{
    T(u64) r = {0};
    for (int i = 0; i < BITS / 8; i++) r[i / 8] += (uint64_t)abs(((T(u8))a)[i] - ((T(u8))b)[i]);
    return (I)r;
}

/* Within each 128 bits. */
LANES(I, P(packs_epi16), (I a, I b), T(i8), shim_sat_i8(((T(i16))(i % 16 < 8 ? a : b))[i / 16 * 8 + i % 8]))
LANES(I, P(packs_epi32), (I a, I b), T(i16), shim_sat_i16(((T(i32))(i % 8 < 4 ? a : b))[i / 8 * 4 + i % 4]))
LANES(I, P(packus_epi16), (I a, I b), T(u8), shim_sat_u8(((T(i16))(i % 16 < 8 ? a : b))[i / 16 * 8 + i % 8]))
LANES(I, P(packus_epi32), (I a, I b), T(u16), shim_sat_u16(((T(i32))(i % 8 < 4 ? a : b))[i / 8 * 4 + i % 4]))
LANES(I, P(unpacklo_epi8), (I a, I b), T(u8), ((T(u8))(i % 2 ? b : a))[i / 16 * 16 + i % 16 / 2])
LANES(I, P(shuffle_epi8), (I a, I n), T(u8),
      ((T(u8))n)[i] & 128 ? 0 : ((T(u8))a)[i / 16 * 16 + (((T(u8))n)[i] & 15)])
/* clang-format on */

#undef BITS
#undef PREFIX
#undef HALF
#undef H
#undef HT
#undef M
#undef F
#undef I
#undef T
#undef P
#undef PSI
