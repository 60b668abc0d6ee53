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

/* The d elements of K or V that the store holds for a token of a sequence (index in the step) and KV head. */
const void *dlab_ref_cached_k(const dlab_kv_view *kv, const dlab_desc_head *desc, int32_t seq, int32_t token,
                              int32_t head);
const void *dlab_ref_cached_v(const dlab_kv_view *kv, const dlab_desc_head *desc, int32_t seq, int32_t token,
                              int32_t head);

/* q · k of one token, in double. */
double dlab_ref_dot(const float *q, const void *k, dlab_dtype k_dtype, int32_t dim);

/* The id of the largest of n logits, the lowest on a tie; −1 where one is NaN. */
int32_t dlab_ref_argmax(const float *logits, int32_t n);

#endif
