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
    X(Q4_1, "q4_1", 32, 20) /* f16 d, f16 m; nibbles as Q4_0: x = q·d + m */                                          \
    /* elements of the KV cache, whose scales lie elsewhere (kernels/op.h) */                                          \
    X(U8, "int8", 1, 1)       /* unsigned byte q: x = (q − zero)·scale */                                           \
    X(E4M3, "fp8_e4m3", 1, 1) /* OCP 8-bit floating point (OFP8 rev. 1.0), largest 448, no infinity */                 \
    X(E5M2, "fp8_e5m2", 1, 1) /* OCP 8-bit floating point, largest 57344: the upper byte of an f16 */                  \
    X(U4, "int4", 32, 16) /* nibbles as Q4_0's: byte j holds element j low and j + 16 high: x = (q − zero)·scale */

typedef enum {
#define DLAB_DTYPE_ENUM(name, text, elems, bytes) DLAB_##name,
    DLAB_DTYPE_LIST(DLAB_DTYPE_ENUM)
#undef DLAB_DTYPE_ENUM
        DLAB_DTYPE_N
} dlab_dtype;

const char *dlab_dtype_name(dlab_dtype t);
int dlab_dtype_block(dlab_dtype t);       /* elements a block */
int dlab_dtype_block_bytes(dlab_dtype t); /* bytes a block */
/* Bytes of n elements; n must be a multiple of the block (of U4: any n, the last block is whole). */
size_t dlab_dtype_bytes(dlab_dtype t, int64_t n);

/* IEEE binary16 and bfloat16 conversions, round to nearest even; NaN stays NaN. */
float dlab_f16_to_f32(uint16_t h);
uint16_t dlab_f32_to_f16(float f);
float dlab_bf16_to_f32(uint16_t h);
uint16_t dlab_f32_to_bf16(float f);
/* OFP8. Round to nearest even, saturating: beyond the largest finite number, infinity included, the largest finite number
 * of that sign; NaN stays NaN. */
float dlab_e4m3_to_f32(uint8_t b);
uint8_t dlab_f32_to_e4m3(float f);
float dlab_e5m2_to_f32(uint8_t b);
uint8_t dlab_f32_to_e5m2(float f);

#endif
