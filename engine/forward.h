/* The one layer loop, the same for every strategy: submits a step's ops to the device. */
#ifndef DLAB_ENGINE_FORWARD_H
#define DLAB_ENGINE_FORWARD_H

#include "engine/plan.h"
#include "engine/weights.h"

/* What becomes of the logits. */
typedef enum { DLAB_WANT_NONE, DLAB_WANT_SAMPLE, DLAB_WANT_SCORE } dlab_want;

typedef struct {
    dlab_device *dev;
    const dlab_resolved *plan;
    const dlab_model_info *info;
    const dlab_weights *weights;
    bool rope_norm;
    dlab_buf buf[DLAB_BUFFER_N];
    dlab_kv_store *store;
    const size_t *span_off; /* [tables] where the step's spans are in the descriptor */
} dlab_forward_ctx;

/* Runs the step that `desc` (the host's copy, desc_bytes long) describes; max_len is its longest sequence. Results: sampled
 * tokens or the most likely ones in buf[TOKENS], scores in buf[NLL], by logit row. logits, if not NULL, gets the logits
 * [n_logits, V] (host memory, filled at sync). Asynchronous: the caller syncs. */
dlab_status dlab_forward(const dlab_forward_ctx *c, const dlab_desc_head *desc, size_t desc_bytes, int32_t max_len,
                         dlab_want want, float *logits, dlab_op_cost *cost, dlab_error *err);

#endif
