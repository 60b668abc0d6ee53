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

size_t dlab_dtype_bytes(dlab_dtype t, int64_t n) { return (size_t)(n / infos[t].elems) * (size_t)infos[t].bytes; }

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
