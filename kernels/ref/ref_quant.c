/* The quantizer of the cache, in f32 as kernels/op.h has it, so that other devices can be compared byte for byte. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

#define ZERO_MASK 255u /* the lower 8 bits of a meta are its zero point */

void dlab_ref_range_add(dlab_ref_range *r, float x)
{
    if (!isfinite(x)) return;
    if (x < r->lo) r->lo = x;
    if (x > r->hi) r->hi = x;
}

float dlab_ref_meta_scale(uint32_t meta)
{
    float f;
    meta &= ~ZERO_MASK;
    memcpy(&f, &meta, sizeof f);
    return f;
}

int dlab_ref_meta_zero(uint32_t meta) { return (int)(meta & ZERO_MASK); }

static bool is_integer(dlab_dtype dtype) { return dtype == DLAB_U8 || dtype == DLAB_U4; }

static float largest_code(dlab_dtype dtype) { return dtype == DLAB_U8 ? 255 : 15; }

static float clamp(float x, float most) { return x < 0 ? 0 : x > most ? most : x; }

static float step_of(dlab_dtype dtype, dlab_ref_range r)
{
    const float a = -r.lo > r.hi ? -r.lo : r.hi;
    switch (dtype) {
    case DLAB_E4M3:
        return a / 448.0f;
    case DLAB_E5M2:
        return a / 57344.0f;
    default:
        assert(is_integer(dtype));
        return r.hi / largest_code(dtype) - r.lo / largest_code(dtype);
    }
}

uint32_t dlab_ref_meta(dlab_dtype dtype, dlab_ref_range r)
{
    const float step = step_of(dtype, r);
    if (step < FLT_MIN) return 0;
    uint32_t meta;
    memcpy(&meta, &step, sizeof meta);
    meta = (meta + ZERO_MASK) & ~ZERO_MASK; /* up, so that no value lies beyond the last code */
    if (!is_integer(dtype)) return meta;
    const float inverse = 1 / dlab_ref_meta_scale(meta);
    return meta | (uint32_t)clamp(rintf(-r.lo * inverse), largest_code(dtype));
}

uint8_t dlab_ref_code(dlab_dtype dtype, uint32_t meta, float x)
{
    const float scale = dlab_ref_meta_scale(meta), zero = (float)dlab_ref_meta_zero(meta);
    if (scale == 0) return 0;
    if (isnan(x)) x = 0;
    const float steps = x * (1 / scale);
    switch (dtype) {
    case DLAB_E4M3:
        return dlab_f32_to_e4m3(steps);
    case DLAB_E5M2:
        return dlab_f32_to_e5m2(steps);
    default:
        return (uint8_t)clamp(rintf(steps) + zero, largest_code(dtype));
    }
}

double dlab_ref_decode(dlab_dtype dtype, uint32_t meta, uint8_t code)
{
    const double scale = (double)dlab_ref_meta_scale(meta);
    switch (dtype) {
    case DLAB_E4M3:
        return (double)dlab_e4m3_to_f32(code) * scale;
    case DLAB_E5M2:
        return (double)dlab_e5m2_to_f32(code) * scale;
    default:
        return (code - dlab_ref_meta_zero(meta)) * scale;
    }
}

/* Of a block of 32 nibbles byte j holds element j in its lower half and j + 16 in its upper one. */
static unsigned char *nibble_byte(const void *vector, int32_t i)
{
    return (unsigned char *)vector + i / 32 * 16 + i % 16;
}

uint8_t dlab_ref_get_code(const void *vector, dlab_dtype dtype, int32_t i)
{
    if (dtype != DLAB_U4) return ((const uint8_t *)vector)[i];
    const unsigned char byte = *nibble_byte(vector, i);
    return i % 32 < 16 ? byte & 15 : byte >> 4;
}

void dlab_ref_put_code(void *vector, dlab_dtype dtype, int32_t i, uint8_t code)
{
    if (dtype != DLAB_U4) {
        ((uint8_t *)vector)[i] = code;
        return;
    }
    unsigned char *byte = nibble_byte(vector, i);
    *byte = (unsigned char)(i % 32 < 16 ? (*byte & 0xF0) | code : (*byte & 0x0F) | code << 4);
}
