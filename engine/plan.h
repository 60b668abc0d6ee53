/* A plan made whole: every "auto" resolved, every name looked up, checked for compatibility before anything is allocated;
 * and from it the size of every buffer. */
#ifndef DLAB_ENGINE_PLAN_H
#define DLAB_ENGINE_PLAN_H

#include "engine/attention/attention.h"
#include "engine/attention/pattern.h"
#include "engine/batch/batcher.h"
#include "engine/engine.h"
#include "engine/kv/store.h"

/* Buffers of a step. name, pool */
#define DLAB_BUFFER_LIST(X)                                                                                            \
    X(DESC, ACTIVATIONS)       /* the step descriptor */                                                               \
    X(ROPE, ACTIVATIONS)       /* f32 [max_tokens, d/2, 2] */                                                          \
    X(STREAM, ACTIVATIONS)     /* f32 [R, D] the residual stream */                                                    \
    X(NORM, ACTIVATIONS)       /* f32 [R, D] */                                                                        \
    X(QACT, ACTIVATIONS)       /* activations as `input` [R, max(D, H·d, F)] */                                       \
    X(Q, ACTIVATIONS)          /* f32 [R, H, d] */                                                                     \
    X(K, ACTIVATIONS)          /* f32 [R, G, d] */                                                                     \
    X(V, ACTIVATIONS)          /* f32 [R, G, d] */                                                                     \
    X(ATTN, ACTIVATIONS)       /* f32 [R, H, d] */                                                                     \
    X(GATE, ACTIVATIONS)       /* f32 [R, F] */                                                                        \
    X(UP, ACTIVATIONS)         /* f32 [R, F] */                                                                        \
    X(HEAD, ACTIVATIONS)       /* f32 [S, D]: logit rows, S a pass of the head */                                      \
    X(LOGITS, ACTIVATIONS)     /* f32 [S, V] */                                                                        \
    X(TOKENS, ACTIVATIONS)     /* i32 [L] sampled, or the most likely */                                               \
    X(NLL, ACTIVATIONS)        /* f64 [L] */                                                                           \
    X(WATCH, ACTIVATIONS)      /* i32 [R]: NaN or infinity came up in the row */                                       \
    X(KV_SCRATCH, SCRATCH)     /* kv_write's work, where a step's values share scales */                               \
    X(ATTN_SCRATCH, SCRATCH)   /* what the attention kernel asks for */                                                \
    X(SAMPLE_SCRATCH, SCRATCH) /* [S, V] · 8 bytes, when sampling may be other than greedy */

typedef enum {
#define DLAB_BUFFER_ENUM(name, pool) DLAB_BUFFER_##name,
    DLAB_BUFFER_LIST(DLAB_BUFFER_ENUM)
#undef DLAB_BUFFER_ENUM
        DLAB_BUFFER_N
} dlab_buffer;

typedef struct {
    dlab_plan plan; /* effective */
    dlab_engine_needs needs;
    const dlab_kv_store_ops *store;
    const dlab_batcher_ops *batcher;
    const dlab_policy_ops *policy;
    const dlab_attn_kernel *attention;
    const dlab_attn_pattern *pattern;
    dlab_pattern_opts pattern_opts;
    dlab_kv_config kv;                     /* dev not set */
    int64_t swap_pieces, swap_piece_bytes; /* of the swap area; 0 pieces: none */
    int64_t asked_budget; /* batch.token_budget as asked of each step: 0 when it was left open, or is one of lengths */
    int64_t row_budget;   /* rows of a step that a batcher may use */
    int64_t max_lengths;  /* batch.budget: lengths; 0: no such bound */
    int64_t max_rows;     /* R */
    int64_t max_logits;   /* L: rows of a step that may want logits */
    int64_t head_rows;    /* S */
    dlab_act input;       /* of products whose weights fit it; others take f32 */
    bool rotate;          /* queries and keys are rotated */
    size_t bytes[DLAB_BUFFER_N];
} dlab_resolved;

dlab_pool dlab_buffer_pool(dlab_buffer b);
/* kv.pool sets no bound: there is room for the whole batch at its longest. */
bool dlab_plan_pool_is_open(const dlab_plan *p);
/* kv.max_tokens as used, from the needs. */
dlab_status dlab_plan_reservation(dlab_resolved *r, dlab_error *err);
/* Layouts and the pool: the kv part of a plan whose names, needs and reservation are resolved. */
dlab_status dlab_plan_resolve_kv(dlab_resolved *r, const dlab_model_info *info, dlab_error *err);
/* Tables of spans that a step has, and lists that each row has in one. */
static inline int32_t dlab_span_tables(const dlab_resolved *r) { return r->pattern->by_layer ? r->kv.n_layers : 1; }
static inline int32_t dlab_span_heads(const dlab_resolved *r) { return r->pattern->by_head ? r->kv.n_kv_heads : 1; }
dlab_status dlab_plan_resolve(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                              dlab_resolved *out, dlab_error *err);

#endif
