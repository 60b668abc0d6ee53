/* Element types of buffers and the block layouts of GGUF's quantized types
 * (layouts: ggml/docs/gguf.md and ggml's quantization notes; see docs/decisions.md). */
#ifndef DLAB_BASE_DTYPE_H
#define DLAB_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* name, text, elements a block, bytes a block */
#define DLAB_DTYPE_LIST(X)                                                                                             \
    X(F32, "f32", 1, 4)                                                                                                \
    X(F16, "f16", 1, 2)                                                                                                \
    X(BF16, "bf16", 1, 2)                                                                                              \
    X(Q8_0, "q8_0", 32, 34) /* f16 d; int8 q[32]:             x = q·d */                                              \
    X(Q4_0, "q4_0", 32, 18) /* f16 d; 16 bytes, byte j holds element j low and j+16 high: x = (q−8)·d */            \
    X(Q4_1, "q4_1", 32, 20) /* f16 d, f16 m; nibbles as Q4_0: x = q·d + m */

typedef enum {
#define DLAB_DTYPE_ENUM(name, text, elems, bytes) DLAB_##name,
    DLAB_DTYPE_LIST(DLAB_DTYPE_ENUM)
#undef DLAB_DTYPE_ENUM
        DLAB_DTYPE_N
} dlab_dtype;

const char *dlab_dtype_name(dlab_dtype t);
int dlab_dtype_block(dlab_dtype t);       /* elements a block */
int dlab_dtype_block_bytes(dlab_dtype t); /* bytes a block */
/* Bytes of n elements; n must be a multiple of the block. */
size_t dlab_dtype_bytes(dlab_dtype t, int64_t n);

/* IEEE binary16 and bfloat16 conversions, round to nearest even; NaN stays NaN. */
float dlab_f16_to_f32(uint16_t h);
uint16_t dlab_f32_to_f16(float f);
float dlab_bf16_to_f32(uint16_t h);
uint16_t dlab_f32_to_bf16(float f);

#endif
