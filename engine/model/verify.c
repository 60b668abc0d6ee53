/* Weights that are not finite are found when a model is opened, not as NaN logits later. One pass over the data: the
 * quantized types need only their scales looked at, every bit pattern of the rest is a number. */
#include <string.h>

#include "engine/model/model_own.h"

#define VERIFY_CHUNK 4096 /* elements or blocks between two looks at the result */

/* f16, f32 and bf16 numbers are not finite when all bits of the exponent are set. */
static bool bad_u16(const uint16_t *p, size_t n, uint16_t exponent)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (p[i] & exponent) == exponent;
    return bad != 0;
}

static bool bad_u32(const uint32_t *p, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (p[i] & 0x7f800000u) == 0x7f800000u;
    return bad != 0;
}

/* n_scales f16 at the head of each block. */
static bool bad_blocks(const uint8_t *p, size_t n, size_t block_bytes, size_t n_scales)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < n_scales; s++) {
            uint16_t h;
            memcpy(&h, p + i * block_bytes + s * sizeof h, sizeof h);
            bad |= (h & 0x7c00u) == 0x7c00u;
        }
    return bad != 0;
}

static bool bad_units(dlab_dtype t, const uint8_t *p, size_t n)
{
    switch (t) {
    case DLAB_F32:
        return bad_u32((const uint32_t *)(const void *)p, n);
    case DLAB_F16:
        return bad_u16((const uint16_t *)(const void *)p, n, 0x7c00);
    case DLAB_BF16:
        return bad_u16((const uint16_t *)(const void *)p, n, 0x7f80);
    case DLAB_Q8_0:
    case DLAB_Q4_0:
        return bad_blocks(p, n, (size_t)dlab_dtype_block_bytes(t), 1);
    case DLAB_Q4_1:
        return bad_blocks(p, n, (size_t)dlab_dtype_block_bytes(t), 2);
    case DLAB_U8: /* of the KV cache alone: no weight has them */
    case DLAB_E4M3:
    case DLAB_E5M2:
    case DLAB_U4:
    case DLAB_DTYPE_N:
        break;
    }
    return true;
}

static dlab_status verify_tensor(const dlab_model *m, const dlab_tensor *t, dlab_error *err)
{
    const uint8_t *data = t->data;
    size_t unit = (size_t)dlab_dtype_block_bytes(t->dtype), n = t->bytes / unit;
    for (size_t at = 0; at < n; at += VERIFY_CHUNK) {
        size_t len = n - at < VERIFY_CHUNK ? n - at : VERIFY_CHUNK;
        if (!bad_units(t->dtype, data + at * unit, len)) continue;
        while (!bad_units(t->dtype, data + at * unit, 1)) at++;
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: offset %zu: tensor '%s' has a %s that is not finite in %s %zu of %zu",
                         m->label, (size_t)(data - (const uint8_t *)m->map) + at * unit, t->name,
                         dlab_dtype_block(t->dtype) > 1 ? "scale" : "weight",
                         dlab_dtype_block(t->dtype) > 1 ? "block" : "element", at, n);
    }
    return DLAB_OK;
}

dlab_status dlab_model_verify(const dlab_model *m, dlab_error *err)
{
    for (size_t i = 0; i < m->n_tensors; i++) DLAB_TRY(verify_tensor(m, &m->tensors[i], err));
    return DLAB_OK;
}
