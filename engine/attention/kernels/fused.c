/* K6: scores, softmax and values in one pass, no intermediate in memory but the split pieces' partial results. */
#include "engine/attention/attention.h"

static size_t scratch_bytes(const dlab_attn_shape *s)
{
    return dlab_attn_partials_bytes(s->max_rows, s->n_heads, s->head_dim, s->max_len);
}

static dlab_status run(dlab_recorder *rec, const dlab_attn_call *c, dlab_error *err)
{
    dlab_attn_fused_args a = {
        .q = c->q,
        .out = c->out,
        .desc = c->desc,
        .partials = c->scratch,
        .kv = c->kv,
        .spans = c->spans,
        .n_rows = c->n_rows,
        .n_heads = c->n_heads,
        .max_len = c->max_len,
        .scale = c->scale,
    };
    return dlab_record_op(rec, DLAB_OP_attn_fused, &a, err);
}

const dlab_attn_kernel dlab_attn_kernel_fused = {
    .name = "fused",
    .summary = "one pass with an online softmax; no scores in memory",
    .scratch_bytes = scratch_bytes,
    .run = run,
};
