/* The plain three passes: scores to memory, softmax over them, then the weighted sum of V. */
#include "engine/attention/attention.h"

static size_t scratch_bytes(const dlab_attn_shape *s)
{
    return (size_t)s->max_rows * (size_t)s->n_heads * (size_t)s->max_len * sizeof(float);
}

static dlab_status run(dlab_recorder *rec, const dlab_attn_call *c, dlab_error *err)
{
    static const dlab_op passes[] = {DLAB_OP_attn_scores, DLAB_OP_attn_softmax, DLAB_OP_attn_values};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        dlab_attn_unfused_args a = {
            .q = c->q,
            .out = c->out,
            .desc = c->desc,
            .scores = c->scratch,
            .kv = c->kv,
            .spans = c->spans,
            .n_rows = c->n_rows,
            .n_heads = c->n_heads,
            .max_len = c->max_len,
            .scale = c->scale,
        };
        DLAB_TRY(dlab_record_op(rec, passes[i], &a, err));
    }
    return DLAB_OK;
}

const dlab_attn_kernel dlab_attn_kernel_unfused = {
    .name = "unfused",
    .summary = "three passes with the scores in memory",
    .scratch_bytes = scratch_bytes,
    .run = run,
};
