#include "base/dtype.h"

#include <string.h>

typedef struct {
    const char *name;
    int elems, bytes;
} dtype_info;

static const dtype_info infos[DLAB_DTYPE_N] = {
#define INFO(name, text, elems, bytes) [DLAB_##name] = {text, elems, bytes},
    DLAB_DTYPE_LIST(INFO)
#undef INFO
};

const char *dlab_dtype_name(dlab_dtype t) { return (unsigned)t < DLAB_DTYPE_N ? infos[t].name : "unknown"; }

int dlab_dtype_block(dlab_dtype t) { return infos[t].elems; }

int dlab_dtype_block_bytes(dlab_dtype t) { return infos[t].bytes; }

size_t dlab_dtype_bytes(dlab_dtype t, int64_t n)
{
    const int64_t elems = infos[t].elems;
    return (size_t)((t == DLAB_U4 ? n + elems - 1 : n) / elems) * (size_t)infos[t].bytes;
}

static uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float dlab_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu, mantissa = h & 0x3FFu;
    if (exponent == 0x1F) return bits_float(sign | 0x7F800000u | mantissa << 13);
    if (exponent == 0) {
        /* zero and subnormals: mantissa · 2⁻²⁴, exact in f32 */
        const float magnitude = (float)mantissa * 0x1p-24f;
        return bits_float(sign | float_bits(magnitude));
    }
    return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Shifts right by n (1 … 31), rounding to nearest, ties to even. */
static uint32_t shift_round_even(uint32_t v, unsigned n)
{
    const uint32_t half = 1u << (n - 1), rest = v & ((1u << n) - 1), q = v >> n;
    return q + (rest > half || (rest == half && (q & 1)));
}

uint16_t dlab_f32_to_f16(float f)
{
    const uint32_t u = float_bits(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* from 65520 on, infinity is nearest */
    if (magnitude >= 0x38800000u) return (uint16_t)(sign | shift_round_even(magnitude - (112u << 23), 13));
    const unsigned exponent = magnitude >> 23;
    if (exponent < 102) return (uint16_t)sign; /* under 2⁻²⁵: zero is nearest */
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(mantissa, 126 - exponent));
}

float dlab_bf16_to_f32(uint16_t h) { return bits_float((uint32_t)h << 16); }

uint16_t dlab_f32_to_bf16(float f)
{
    const uint32_t u = float_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u); /* stays NaN, made quiet */
    return (uint16_t)shift_round_even(u, 16);
}

/* Both 8-bit forms: sign, exponent and `bits` of mantissa; a number below the least normal one is a multiple of
 * 2^(1 − bias − bits). `most`: the code of the largest finite number. */
static uint8_t to_fp8(float f, unsigned bits, unsigned bias, uint8_t most, uint8_t nan)
{
    const uint32_t u = float_bits(f), magnitude = u & 0x7FFFFFFFu;
    const uint8_t sign = (uint8_t)(u >> 24 & 0x80u);
    if (magnitude > 0x7F800000u) return sign | nan;
    const unsigned exponent = magnitude >> 23, least = 128 - bias; /* f32's exponent of the least normal number */
    uint32_t code;
    if (exponent >= least) {
        if (exponent - least > 31) return sign | most; /* the shift below needs what is left to fit */
        code = shift_round_even(magnitude - ((least - 1) << 23), 23 - bits);
    } else {
        const unsigned shift = 23 - bits + least - exponent;
        if (exponent == 0 || shift > 24 + 1) return sign;
        code = shift_round_even((magnitude & 0x7FFFFFu) | 0x800000u, shift);
    }
    return sign | (uint8_t)(code < most ? code : most);
}

uint8_t dlab_f32_to_e4m3(float f) { return to_fp8(f, 3, 7, 0x7E, 0x7F); }

uint8_t dlab_f32_to_e5m2(float f) { return to_fp8(f, 2, 15, 0x7B, 0x7F); }

float dlab_e4m3_to_f32(uint8_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = b >> 3 & 15u, mantissa = b & 7u;
    if ((b & 0x7Fu) == 0x7Fu) return bits_float(sign | 0x7FC00000u);
    if (exponent == 0) return bits_float(sign | float_bits((float)mantissa * 0x1p-9f));
    return bits_float(sign | (exponent + 120) << 23 | mantissa << 20);
}

float dlab_e5m2_to_f32(uint8_t b) { return dlab_f16_to_f32((uint16_t)(b << 8)); }
