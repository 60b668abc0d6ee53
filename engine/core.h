/* The engine's insides, shared by engine.c (life, sequences), request.c, step.c (one step), swap.c and score.c (one
 * text). */
#ifndef DLAB_ENGINE_CORE_H
#define DLAB_ENGINE_CORE_H

#include "engine/forward.h"
#include "engine/kv/swap.h"

struct dlab_engine {
    dlab_mem *mem;
    const dlab_model *model;
    dlab_resolved plan;
    dlab_weights weights;
    dlab_forward_ctx fwd;
    dlab_batcher *batcher;
    dlab_batch_state batch;
    int32_t *id_memory;   /* [max_seqs, max_tokens] of the sequences */
    dlab_desc_head *desc; /* the host's copy of the descriptor */
    dlab_slice *slices;   /* [batch_size] */
    dlab_step_token
        *tokens;      /* [batch_size] of the last step; batch.release: at_end: [batch_size, max_tokens] of a batch */
    int64_t *origins; /* of each token: its request as it was submitted (dlab_seq's origin) */
    int64_t n_kept;   /* of them, those that no step has handed over yet */
    bool at_end;      /* batch.release */
    int64_t n_steps;  /* since creation */
    int32_t *sampled; /* [max_logits] */
    int *logit_seq;   /* [max_logits] */
    int32_t *watch;   /* [max_rows] */
    int64_t growths_seen;  /* the store's, at the end of the last step */
    size_t *span_off;      /* [tables] of the step's spans, from the descriptor's begin */
    dlab_kv_swap swap;     /* batch.preemption: swap */
    dlab_kv_image *images; /* [max_seqs] of sequences that were copied out; NULL without an area */
    struct {
        int32_t n_out, n_in;
        int64_t bytes;
    } swapped; /* since the last step ended */
};

/* Which rows of a step want logits. */
typedef struct {
    dlab_want want;
    int64_t from;  /* score: positions from here on */
    float *logits; /* host memory for logits, or NULL */
} dlab_step_want;

typedef struct {
    int32_t max_len;
    int32_t rows, pad_rows, prefill_rows, decode_rows, nonfinite_rows;
    dlab_op_cost cost;
} dlab_step_work;

/* Room in the store for the slices' rows. DLAB_EFULL: not now; what was taken for some of them stays with them. */
dlab_status dlab_step_reserve(dlab_engine *e, const dlab_slice *slices, int n, dlab_error *err);
/* Fills the descriptor, submits the ops, waits, and marks the rows as stored. The slices have room. */
dlab_status dlab_step_execute(dlab_engine *e, const dlab_slice *slices, int n, const dlab_step_want *want,
                              dlab_step_work *work, dlab_error *err);
/* The part of a prefix that the next step may take when one sequence runs alone. */
dlab_slice dlab_step_next_slice(const dlab_engine *e, int seq);
/* Can it be served at all? As dlab_engine_submit. */
dlab_status dlab_engine_check_request(const dlab_engine *e, const dlab_engine_request *r, dlab_error *err);
/* dlab_batch_state's open, close and release; the first for a sequence whose ids are known. */
dlab_status dlab_engine_open_seq(void *engine, int seq, int64_t extra, dlab_error *err);
void dlab_engine_close_seq(void *engine, int seq);
dlab_status dlab_engine_release_seq(void *engine, int seq, dlab_error *err);

/* -- batch.preemption: swap; without an area nothing is ever swapped -- */
dlab_status dlab_engine_swap_create(dlab_engine *e, dlab_error *err);
void dlab_engine_swap_destroy(dlab_engine *e);
/* Of a sequence that is about to give its place back: copied out, if its request goes on, it holds something of its own and
 * that fits; otherwise it will be computed again. */
dlab_status dlab_engine_swap_out(dlab_engine *e, int seq, dlab_error *err);
bool dlab_engine_is_swapped(const dlab_engine *e, int seq);
/* Back to a place with room for it; *n_held: the tokens that it holds again. */
dlab_status dlab_engine_swap_in(dlab_engine *e, int seq, int64_t *n_held, dlab_error *err);
/* It will not come back. */
void dlab_engine_swap_drop(dlab_engine *e, int seq);

#endif
