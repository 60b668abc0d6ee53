#include "engine/forward.h"

#include <math.h>

typedef struct {
    const dlab_forward_ctx *c;
    dlab_recorder rec;
    int32_t n_rows, max_len;
    float *logits;
    dlab_op_cost before, after; /* around the first layer's attention: where spans are the same, so is the cost */
} step;

static dlab_at at(const step *s, dlab_buffer b) { return (dlab_at){s->c->buf[b], 0}; }

#define RUN(s, op, ...)                                                                                                \
    do {                                                                                                               \
        dlab_##op##_args op_args_ = {__VA_ARGS__};                                                                     \
        DLAB_TRY(dlab_record_op(&(s)->rec, DLAB_OP_##op, &op_args_, err));                                             \
    } while (0)

static dlab_act input_of(const step *s, const dlab_matrix *w)
{
    const dlab_act input = s->c->plan->input;
    return dlab_act_fits(input, w->dtype) ? input : DLAB_ACT_F32;
}

/* One product; x is the f32 buffer, of which QACT holds what the plan's products take. */
static dlab_status product(step *s, dlab_buffer x, const dlab_matrix *w, dlab_buffer y, bool accumulate, int32_t n_rows,
                           dlab_error *err)
{
    const dlab_act input = input_of(s, w);
    RUN(s, matmul, .x = at(s, input == DLAB_ACT_F32 ? x : DLAB_BUFFER_QACT), .y = at(s, y), .w = *w, .n_rows = n_rows,
        .input = input, .accumulate = accumulate);
    return DLAB_OK;
}

/* Activations are quantized, or rounded, once for all products that read them. */
static dlab_status quantize_for(step *s, dlab_buffer x, int32_t n_rows, const dlab_matrix *const *w, size_t n,
                                dlab_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const dlab_act to = input_of(s, w[i]);
        if (to == DLAB_ACT_F32) continue;
        RUN(s, quant_act, .x = at(s, x), .y = at(s, DLAB_BUFFER_QACT), .n_rows = n_rows, .k = w[i]->k, .to = to);
        return DLAB_OK;
    }
    return DLAB_OK;
}

static dlab_span_table spans_of(const step *s, int layer)
{
    const dlab_resolved *p = s->c->plan;
    if (p->pattern->dense) return (dlab_span_table){.heads = 1};
    const dlab_at at = {s->c->buf[DLAB_BUFFER_DESC], s->c->span_off[p->pattern->by_layer ? layer : 0]};
    return (dlab_span_table){.at = at, .heads = dlab_span_heads(p)};
}

/* Counting what spans visit takes a walk over them, which every layer would repeat. */
static dlab_status attend(step *s, const dlab_attn_call *call, int layer, dlab_error *err)
{
    const bool again = layer > 0 && !s->c->plan->pattern->by_layer;
    if (layer == 0) s->before = s->rec.cost;
    s->rec.counted = again;
    DLAB_TRY(s->c->plan->attention->run(&s->rec, call, err));
    s->rec.counted = false;
    if (layer == 0) s->after = s->rec.cost;
    if (again) dlab_cost_add_difference(&s->rec.cost, &s->before, &s->after);
    return DLAB_OK;
}

static dlab_status attention(step *s, const dlab_layer_weights *w, int layer, dlab_error *err)
{
    const dlab_model_info *info = s->c->info;
    int32_t n = s->n_rows;
    RUN(s, rmsnorm, .x = at(s, DLAB_BUFFER_STREAM), .w = w->attn_norm, .y = at(s, DLAB_BUFFER_NORM),
        .watch = at(s, DLAB_BUFFER_WATCH), .watch_first = layer == 0, .n_rows = n, .dim = info->width,
        .eps = info->eps);
    DLAB_TRY(quantize_for(s, DLAB_BUFFER_NORM, n, (const dlab_matrix *const[]){&w->q, &w->k, &w->v}, 3, err));
    DLAB_TRY(product(s, DLAB_BUFFER_NORM, &w->q, DLAB_BUFFER_Q, false, n, err));
    DLAB_TRY(product(s, DLAB_BUFFER_NORM, &w->k, DLAB_BUFFER_K, false, n, err));
    DLAB_TRY(product(s, DLAB_BUFFER_NORM, &w->v, DLAB_BUFFER_V, false, n, err));
    RUN(s, rope, .x = at(s, DLAB_BUFFER_Q), .table = at(s, DLAB_BUFFER_ROPE), .desc = at(s, DLAB_BUFFER_DESC),
        .n_rows = n, .n_heads = info->n_heads, .head_dim = info->head_dim, .rot_dim = info->head_dim,
        .norm = s->c->rope_norm);
    RUN(s, rope, .x = at(s, DLAB_BUFFER_K), .table = at(s, DLAB_BUFFER_ROPE), .desc = at(s, DLAB_BUFFER_DESC),
        .n_rows = n, .n_heads = info->n_kv_heads, .head_dim = info->head_dim, .rot_dim = info->head_dim,
        .norm = s->c->rope_norm);
    if (s->c->plan->rotate) {
        RUN(s, hadamard, .x = at(s, DLAB_BUFFER_Q), .n_rows = n, .n_heads = info->n_heads, .head_dim = info->head_dim);
        RUN(s, hadamard, .x = at(s, DLAB_BUFFER_K), .n_rows = n, .n_heads = info->n_kv_heads,
            .head_dim = info->head_dim);
    }
    dlab_kv_view view;
    s->c->store->ops->view(s->c->store, layer, &view);
    RUN(s, kv_write, .k = at(s, DLAB_BUFFER_K), .v = at(s, DLAB_BUFFER_V), .desc = at(s, DLAB_BUFFER_DESC),
        .work = at(s, DLAB_BUFFER_KV_SCRATCH), .kv = view, .n_rows = n);
    dlab_attn_call call = {
        .q = at(s, DLAB_BUFFER_Q),
        .out = at(s, DLAB_BUFFER_ATTN),
        .desc = at(s, DLAB_BUFFER_DESC),
        .scratch = at(s, DLAB_BUFFER_ATTN_SCRATCH),
        .kv = view,
        .spans = spans_of(s, layer),
        .n_rows = n,
        .n_heads = info->n_heads,
        .max_len = s->max_len,
        .scale = 1.0f / sqrtf((float)info->head_dim),
    };
    DLAB_TRY(attend(s, &call, layer, err));
    DLAB_TRY(quantize_for(s, DLAB_BUFFER_ATTN, n, (const dlab_matrix *const[]){&w->o}, 1, err));
    return product(s, DLAB_BUFFER_ATTN, &w->o, DLAB_BUFFER_STREAM, true, n, err);
}

static dlab_status feed_forward(step *s, const dlab_layer_weights *w, dlab_error *err)
{
    const dlab_model_info *info = s->c->info;
    int32_t n = s->n_rows;
    RUN(s, rmsnorm, .x = at(s, DLAB_BUFFER_STREAM), .w = w->ffn_norm, .y = at(s, DLAB_BUFFER_NORM),
        .watch = at(s, DLAB_BUFFER_WATCH), .n_rows = n, .dim = info->width, .eps = info->eps);
    DLAB_TRY(quantize_for(s, DLAB_BUFFER_NORM, n, (const dlab_matrix *const[]){&w->gate, &w->up}, 2, err));
    DLAB_TRY(product(s, DLAB_BUFFER_NORM, &w->gate, DLAB_BUFFER_GATE, false, n, err));
    DLAB_TRY(product(s, DLAB_BUFFER_NORM, &w->up, DLAB_BUFFER_UP, false, n, err));
    RUN(s, swiglu, .gate = at(s, DLAB_BUFFER_GATE), .up = at(s, DLAB_BUFFER_UP), .out = at(s, DLAB_BUFFER_GATE),
        .n_rows = n, .dim = info->ffn);
    DLAB_TRY(quantize_for(s, DLAB_BUFFER_GATE, n, (const dlab_matrix *const[]){&w->down}, 1, err));
    return product(s, DLAB_BUFFER_GATE, &w->down, DLAB_BUFFER_STREAM, true, n, err);
}

/* The head over logit rows first … first + n − 1: only rows that want logits are multiplied, a bounded number at a time. */
static dlab_status head_pass(step *s, int32_t first, int32_t n, dlab_want want, dlab_error *err)
{
    const dlab_forward_ctx *c = s->c;
    const dlab_model_info *info = c->info;
    RUN(s, gather, .x = at(s, DLAB_BUFFER_STREAM), .out = at(s, DLAB_BUFFER_HEAD), .desc = at(s, DLAB_BUFFER_DESC),
        .first = first, .n_logits = n, .dim = info->width);
    RUN(s, rmsnorm, .x = at(s, DLAB_BUFFER_HEAD), .w = c->weights->final_norm, .y = at(s, DLAB_BUFFER_HEAD),
        .n_rows = n, .dim = info->width, .eps = info->eps);
    DLAB_TRY(quantize_for(s, DLAB_BUFFER_HEAD, n, (const dlab_matrix *const[]){&c->weights->head}, 1, err));
    DLAB_TRY(product(s, DLAB_BUFFER_HEAD, &c->weights->head, DLAB_BUFFER_LOGITS, false, n, err));
    if (want == DLAB_WANT_SCORE) {
        RUN(s, score, .logits = at(s, DLAB_BUFFER_LOGITS), .nll = at(s, DLAB_BUFFER_NLL),
            .top1 = at(s, DLAB_BUFFER_TOKENS), .desc = at(s, DLAB_BUFFER_DESC), .first = first, .n_logits = n,
            .vocab = info->vocab);
    } else {
        RUN(s, sample, .logits = at(s, DLAB_BUFFER_LOGITS), .tokens = at(s, DLAB_BUFFER_TOKENS),
            .desc = at(s, DLAB_BUFFER_DESC), .work = at(s, DLAB_BUFFER_SAMPLE_SCRATCH), .first = first, .n_logits = n,
            .vocab = info->vocab,
            /* Even if nobody draws in this step: a device's own scratch must not wait for the first who does. */
            .draws = c->plan->bytes[DLAB_BUFFER_SAMPLE_SCRATCH] > 0);
    }
    if (!s->logits) return DLAB_OK;
    size_t row = (size_t)info->vocab;
    return c->dev->ops->download(c->dev, s->logits + (size_t)first * row, at(s, DLAB_BUFFER_LOGITS),
                                 (size_t)n * row * sizeof(float), err);
}

dlab_status dlab_forward(const dlab_forward_ctx *c, const dlab_desc_head *desc, size_t desc_bytes, int32_t max_len,
                         dlab_want want, float *logits, dlab_op_cost *cost, dlab_error *err)
{
    step s = {.c = c, .rec = {.dev = c->dev, .desc = desc}, .n_rows = desc->n_rows, .max_len = max_len};
    s.logits = logits;
    DLAB_TRY(c->dev->ops->upload(c->dev, at(&s, DLAB_BUFFER_DESC), desc, desc_bytes, err));
    RUN(&s, embed, .table = c->weights->embedding, .desc = at(&s, DLAB_BUFFER_DESC), .out = at(&s, DLAB_BUFFER_STREAM),
        .n_rows = s.n_rows);
    for (int i = 0; i < c->weights->n_layers; i++) {
        DLAB_TRY(attention(&s, &c->weights->layers[i], i, err));
        DLAB_TRY(feed_forward(&s, &c->weights->layers[i], err));
    }
    int32_t n_logits = want == DLAB_WANT_NONE ? 0 : desc->n_logits;
    for (int32_t first = 0; first < n_logits; first += (int32_t)c->plan->head_rows) {
        int32_t left = n_logits - first, pass = (int32_t)c->plan->head_rows;
        DLAB_TRY(head_pass(&s, first, left < pass ? left : pass, want, err));
    }
    *cost = s.rec.cost;
    return DLAB_OK;
}
