/* The oracle: one plain file an op, in double, on one thread. Nothing here is fast; everything should be obvious.
 * kernels/ref/OP.c defines `void dlab_ref_OP(const void *args)`; args is the op's struct of kernels/op.h. */
#ifndef DLAB_KERNELS_REF_REF_H
#define DLAB_KERNELS_REF_REF_H

#include "kernels/device.h"
#include "kernels/host_mem.h"
#include "kernels/op.h"

typedef void (*dlab_ref_kernel)(const void *args);
extern const dlab_ref_kernel dlab_ref_kernels[DLAB_OP_N]; /* generated from the files here */
extern const dlab_device_ops dlab_device_ref;

#define DLAB_REF_OP_DECLARE(name, args_type) void dlab_ref_##name(const void *args);
DLAB_OP_LIST(DLAB_REF_OP_DECLARE)
#undef DLAB_REF_OP_DECLARE

/* Element k of row `row` of a weight, whatever its dtype; exact in double. */
double dlab_ref_weight(const dlab_matrix *m, int64_t row, int64_t k);

/* Element i of an array of f32, f16 or bf16. put rounds to nearest even. */
double dlab_ref_element(const void *array, dlab_dtype dtype, int64_t i);
void dlab_ref_put_element(void *array, dlab_dtype dtype, int64_t i, double value);

/* ---- quantization, as kernels/op.h describes it at dlab_kv_plane ---- */

/* The finite values that share a scale; starts as {0, 0}. */
typedef struct {
    float lo, hi;
} dlab_ref_range;

void dlab_ref_range_add(dlab_ref_range *r, float x);
/* The u32 of scale and zero point for values of that range in U8, U4, E4M3 or E5M2. */
uint32_t dlab_ref_meta(dlab_dtype dtype, dlab_ref_range r);
float dlab_ref_meta_scale(uint32_t meta);
int dlab_ref_meta_zero(uint32_t meta);
/* A value's bits (of U4: the lower four), and the value of such bits; exact in double. */
uint8_t dlab_ref_code(dlab_dtype dtype, uint32_t meta, float x);
double dlab_ref_decode(dlab_dtype dtype, uint32_t meta, uint8_t code);

/* Code i of a vector: a byte, or of U4 a nibble. */
uint8_t dlab_ref_get_code(const void *vector, dlab_dtype dtype, int32_t i);
void dlab_ref_put_code(void *vector, dlab_dtype dtype, int32_t i, uint8_t code);

/* ---- the cache ---- */

/* The segment that holds a token of a sequence (its index in the step). */
const dlab_desc_seg *dlab_ref_segment(const dlab_desc_head *desc, int32_t seq, int32_t token);
/* Where token `index` of a region of KV head `head` has its elements, where its scales begin, and which of these is that
 * of element i (none with DLAB_SCALES_NONE). off: the region of KV head 0. */
void *dlab_ref_vector(const dlab_kv_plane *p, int64_t off, int32_t head, int32_t index);
uint32_t *dlab_ref_metas(const dlab_kv_plane *p, int64_t off, int32_t head);
int64_t dlab_ref_meta_index(const dlab_kv_plane *p, int32_t head_dim, int32_t index, int32_t i);
/* A token's vector in the tail of a sequence with this tail_slot. */
void *dlab_ref_tail_vector(const dlab_kv_plane *p, int32_t head_dim, int32_t tail_slot, int32_t head, int32_t pos);

/* out [head_dim]: the values that the cache holds for a token of a sequence (its index in the step), of K or of V. */
void dlab_ref_cached_k(const dlab_kv_view *kv, const dlab_desc_head *desc, int32_t seq, int32_t token, int32_t head,
                       double *out);
void dlab_ref_cached_v(const dlab_kv_view *kv, const dlab_desc_head *desc, int32_t seq, int32_t token, int32_t head,
                       double *out);

/* ---- attention ---- */

#define DLAB_REF_MAX_HEAD_DIM 1024

/* The tokens that a row visits for a KV head, in order:
 * for (dlab_ref_walk w = dlab_ref_visit(…); dlab_ref_next(&w, &token);) */
typedef struct {
    dlab_span dense; /* what a row without a table visits */
    const dlab_span *spans;
    int32_t n_spans, span, i;
} dlab_ref_walk;

dlab_ref_walk dlab_ref_visit(const dlab_span_table *table, const dlab_desc_head *desc, int32_t n_rows, int64_t row,
                             int32_t kv_head);
bool dlab_ref_next(dlab_ref_walk *w, int32_t *token);

double dlab_ref_dot(const float *q, const double *k, int32_t dim);

/* The id of the largest of n logits, the lowest on a tie; −1 where one is NaN. */
int32_t dlab_ref_argmax(const float *logits, int32_t n);

#endif
