/* How attention is computed, one file each in engine/attention/kernels: which ops, and what scratch memory they need. */
#ifndef DLAB_ENGINE_ATTENTION_ATTENTION_H
#define DLAB_ENGINE_ATTENTION_ATTENTION_H

#include "engine/recorder.h"

typedef struct {
    int32_t n_heads, head_dim;
    int64_t max_rows; /* rows of a step */
    int64_t max_len;  /* tokens of a sequence */
} dlab_attn_shape;

typedef struct {
    dlab_at q, out, desc, scratch; /* q, out f32 [R, H, d] */
    dlab_kv_view kv;
    dlab_span_table spans;
    int32_t n_rows, n_heads;
    int32_t max_len; /* longest sequence of this step */
    float scale;
} dlab_attn_call;

typedef struct {
    const char *name, *summary;
    size_t (*scratch_bytes)(const dlab_attn_shape *s);
    dlab_status (*run)(dlab_recorder *rec, const dlab_attn_call *c, dlab_error *err);
} dlab_attn_kernel;

extern const dlab_attn_kernel *const dlab_attn_kernels[]; /* generated; NULL-terminated */

/* NULL if unknown. */
const dlab_attn_kernel *dlab_attn_kernel_find(const char *name);

#endif
