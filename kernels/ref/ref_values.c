#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

static double half_at(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (double)dlab_f16_to_f32(h);
}

/* Element j (0 … 31) of a block of 4-bit numbers: the low halves hold 0 … 15, the high halves 16 … 31. */
static int nibble_at(const unsigned char *q, int j) { return j < 16 ? q[j] & 15 : q[j - 16] >> 4; }

double dlab_ref_weight(const dlab_matrix *m, int64_t row, int64_t k)
{
    const unsigned char *start =
        (const unsigned char *)dlab_host_ptr(m->at) + (size_t)row * dlab_dtype_bytes(m->dtype, m->k);
    const int per_block = dlab_dtype_block(m->dtype), j = (int)(k % per_block);
    const unsigned char *block = start + (size_t)(k / per_block) * (size_t)dlab_dtype_block_bytes(m->dtype);
    switch (m->dtype) {
    case DLAB_Q8_0:
        return half_at(block) * (int8_t)block[2 + j];
    case DLAB_Q4_0:
        return half_at(block) * (nibble_at(block + 2, j) - 8);
    case DLAB_Q4_1:
        return half_at(block) * nibble_at(block + 4, j) + half_at(block + 2);
    default:
        return dlab_ref_element(start, m->dtype, k);
    }
}

double dlab_ref_element(const void *array, dlab_dtype dtype, int64_t i)
{
    const char *p = (const char *)array + i * dlab_dtype_block_bytes(dtype);
    if (dtype == DLAB_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    assert(dtype == DLAB_F16 || dtype == DLAB_BF16);
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (double)(dtype == DLAB_F16 ? dlab_f16_to_f32(h) : dlab_bf16_to_f32(h));
}

void dlab_ref_put_element(void *array, dlab_dtype dtype, int64_t i, double value)
{
    char *p = (char *)array + i * dlab_dtype_block_bytes(dtype);
    const float f = (float)value;
    if (dtype == DLAB_F32) {
        memcpy(p, &f, sizeof f);
        return;
    }
    assert(dtype == DLAB_F16 || dtype == DLAB_BF16);
    const uint16_t h = dtype == DLAB_F16 ? dlab_f32_to_f16(f) : dlab_f32_to_bf16(f);
    memcpy(p, &h, sizeof h);
}

int32_t dlab_ref_argmax(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        if (isnan(logits[i])) return -1;
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}
