#include "engine/plan.h"

#include <string.h>

#include "base/cores.h"
#include "base/int.h"
#include "engine/model/model.h"
#include "engine/weights.h"

#define DEFAULT_CHUNK   512
#define DEFAULT_BUDGET  2048
#define DEFAULT_LENGTHS 8192 /* B3's */
#define HEAD_ROWS       64   /* rows that one pass of the output head takes at most: bounds the memory of the logits */
#define MAX_HEAD_DIM    1024
#define MAX_ROWS        ((int64_t)1 << 26)
#define MAX_SCORES      ((int64_t)1 << 44) /* rows × tokens */

dlab_pool dlab_buffer_pool(dlab_buffer b)
{
    static const dlab_pool pools[] = {
#define DLAB_BUFFER_POOL(name, pool) DLAB_POOL_##pool,
        DLAB_BUFFER_LIST(DLAB_BUFFER_POOL)
#undef DLAB_BUFFER_POOL
    };
    return pools[b];
}

/* Whether products of most bytes of the matrices can take such inputs. */
static bool mostly_fit(const dlab_model *m, dlab_act input)
{
    size_t n = 0, fit = 0, all = 0;
    const dlab_tensor *t = dlab_model_tensors(m, &n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].n_dims < 2) continue;
        all += t[i].bytes;
        if (dlab_act_fits(input, t[i].dtype)) fit += t[i].bytes;
    }
    return 2 * fit > all;
}

static dlab_status resolve_compute(dlab_resolved *r, const dlab_model *m, dlab_error *err)
{
    dlab_plan *p = &r->plan;
    if (strcmp(p->compute, "auto") == 0) p->compute = mostly_fit(m, DLAB_ACT_INT8) ? "int8" : "f32";
    if (strcmp(p->compute, "int8") == 0) r->input = DLAB_ACT_INT8;
    if (strcmp(p->compute, "bf16") == 0) r->input = DLAB_ACT_BF16;
    if (mostly_fit(m, r->input)) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "compute: %s needs %s weights, and most of this model's are %s: use compute: auto", p->compute,
                     r->input == DLAB_ACT_INT8 ? "quantized" : "bf16", dlab_model_get_info(m)->type);
}

static dlab_status resolve_names(dlab_resolved *r, const dlab_model *m, dlab_error *err)
{
    dlab_plan *p = &r->plan;
    r->store = dlab_kv_store_find(p->kv_store);
    r->batcher = dlab_batcher_find(p->batch_mode);
    r->policy = dlab_policy_find(p->batch_policy);
    r->attention = dlab_attn_kernel_find(p->attention_kernel);
    r->pattern = dlab_attn_pattern_find(p->attention_pattern);
    r->pattern_opts =
        (dlab_pattern_opts){p->attention_window, p->attention_stride, p->attention_block, p->attention_sinks};
    r->rotate = strcmp(p->kv_rotation, "hadamard") == 0;
    if (!r->store || !r->batcher || !r->policy || !r->attention || !r->pattern) {
        return DLAB_FAIL(err, DLAB_EINTERNAL, "plan: a name passed the table but has no entry");
    }
    if (strcmp(p->isa, "auto") == 0) p->isa = dlab_isa_best();
    if (strcmp(p->device, "ref") == 0) { /* one thread of plain C, whatever is asked */
        p->isa = dlab_isa_list[0];
        p->threads = 1;
    }
    if (p->threads == 0) p->threads = dlab_cores_usable();
    return resolve_compute(r, m, err);
}

/* What the workload needs, against what the model and the plan allow. */
static dlab_status resolve_needs(dlab_resolved *r, const dlab_model_info *info, dlab_error *err)
{
    dlab_plan *p = &r->plan;
    dlab_engine_needs *n = &r->needs;
    if (n->max_seqs < 1 || n->max_tokens < 1 || n->max_prompt < 1 || n->max_prompt > n->max_tokens) {
        return DLAB_FAIL(err, DLAB_EINTERNAL, "engine: needs of %lld sequences, %lld tokens, prompt %lld",
                         (long long)n->max_seqs, (long long)n->max_tokens, (long long)n->max_prompt);
    }
    if (n->max_tokens > info->context) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "a sequence of %lld tokens (prompt, depth and output): the model's context is %d",
                         (long long)n->max_tokens, info->context);
    }
    n->max_seqs = dlab_max_i64(n->max_seqs, p->batch_size);
    if (info->head_dim > MAX_HEAD_DIM) {
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "heads of %d elements: kernels are made for at most %d", info->head_dim,
                         MAX_HEAD_DIM);
    }
    return DLAB_OK;
}

/* batch.budget: lengths. The sum of lengths bounds the rows too, unless prompts are padded. */
static void resolve_lengths(dlab_resolved *r)
{
    dlab_plan *p = &r->plan;
    if (p->batch_token_budget == 0) p->batch_token_budget = DEFAULT_LENGTHS;
    r->max_lengths = p->batch_token_budget;
    const bool padded = r->batcher->pads && strcmp(p->batch_padding, "compute") == 0;
    if (!padded) r->max_rows = dlab_min_i64(r->max_rows, r->max_lengths);
    r->row_budget = r->max_rows;
}

static dlab_status resolve_rows(dlab_resolved *r, dlab_error *err)
{
    dlab_plan *p = &r->plan;
    if (p->batch_token_budget == 0) p->batch_token_budget = dlab_max_i64(DEFAULT_BUDGET, p->batch_size);
    r->row_budget = p->batch_token_budget;
    r->max_rows = dlab_min_i64(r->max_rows, r->row_budget);
    if (r->row_budget >= p->batch_size) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "batch.token_budget: %lld rows a step cannot hold a decode step of batch.size %lld",
                     (long long)p->batch_token_budget, (long long)p->batch_size);
}

/* What a step may take. */
static dlab_status resolve_budget(dlab_resolved *r, dlab_error *err)
{
    dlab_plan *p = &r->plan;
    const dlab_engine_needs *n = &r->needs;
    const bool by_lengths = strcmp(p->batch_budget, "lengths") == 0;
    if (!r->store->retains && (p->batch_chunk > 0 || (p->batch_token_budget > 0 && !by_lengths))) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "kv.store: %s keeps nothing between steps, so a prefix cannot be split: leave batch.chunk and "
                         "batch.token_budget at 0",
                         r->store->name);
    }
    r->asked_budget = by_lengths ? 0 : p->batch_token_budget;
    if (r->store->retains) {
        if (p->batch_chunk == 0) p->batch_chunk = DEFAULT_CHUNK;
        /* Where the pool may run out, a sequence may be computed again, with what it has produced. */
        const int64_t longest = dlab_plan_pool_is_open(p) ? n->max_prompt : n->max_tokens;
        r->max_rows = p->batch_size * dlab_min_i64(p->batch_chunk, longest);
    } else {
        r->row_budget = r->max_rows = p->batch_size * n->max_tokens;
    }
    if (by_lengths) {
        resolve_lengths(r);
        return DLAB_OK;
    }
    return r->store->retains ? resolve_rows(r, err) : DLAB_OK;
}

static dlab_status check_batch(const dlab_resolved *r, dlab_error *err)
{
    const dlab_plan *p = &r->plan;
    if (strcmp(p->batch_release, "at_end") != 0 || r->batcher->together) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "batch.release: at_end needs a batch that ends together: batch.mode: static, not %s",
                     r->batcher->name);
}

/* With these bounds no product of size_buffers or of a store leaves 64 bits, and a descriptor's offsets fit in 32. */
static dlab_status check_sizes(const dlab_resolved *r, const dlab_model_info *info, dlab_error *err)
{
    dlab_kv_need need; /* f32 takes the most bytes, and twice that is more than any tail or scale adds */
    DLAB_TRY(dlab_kv_plan("f32", "f32", info->n_layers, info->n_kv_heads, 2 * (int64_t)info->head_dim,
                          r->plan.kv_max_tokens, r->needs.max_seqs, &need, err));
    if (r->max_rows <= MAX_ROWS && r->max_rows * r->needs.max_tokens <= MAX_SCORES) return DLAB_OK;
    return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                     "a step of %lld rows over sequences of %lld tokens: at most %lld rows and %lld scores a head",
                     (long long)r->max_rows, (long long)r->needs.max_tokens, (long long)MAX_ROWS,
                     (long long)MAX_SCORES);
}

static size_t mul(int64_t a, int64_t b, int64_t c) { return (size_t)a * (size_t)b * (size_t)c; }

/* Spans of all tables of a step. */
static size_t spans_bytes(const dlab_resolved *r)
{
    if (r->pattern->dense) return 0;
    const size_t lists = (size_t)r->max_rows * (size_t)dlab_span_heads(r);
    const size_t spans = (size_t)r->pattern->max_spans(&r->pattern_opts, r->needs.max_tokens);
    return (size_t)dlab_span_tables(r) * ((lists + 1) * sizeof(int32_t) + lists * spans * sizeof(dlab_span));
}

static void size_buffers(dlab_resolved *r, const dlab_model_info *info)
{
    int64_t rows = r->max_rows, width = info->width, q = (int64_t)info->n_heads * info->head_dim;
    int64_t kv = (int64_t)info->n_kv_heads * info->head_dim, widest = dlab_max_i64(dlab_max_i64(width, q), info->ffn);
    r->max_logits = dlab_max_i64(r->plan.batch_size, dlab_min_i64(rows, r->needs.max_logits));
    r->head_rows = dlab_min_i64(HEAD_ROWS, r->max_logits);
    size_t *b = r->bytes;
    dlab_kv_config used = r->kv; /* a sequence may be reserved more than it will come to */
    used.max_tokens = dlab_min_i64(used.max_tokens, r->needs.max_tokens);
    b[DLAB_BUFFER_DESC] = sizeof(dlab_desc_head) + (size_t)rows * sizeof(dlab_desc_row) +
                          (size_t)r->plan.batch_size *
                              (sizeof(dlab_desc_seq) + (size_t)r->store->max_segs(&used) * sizeof(dlab_desc_seg)) +
                          (size_t)r->max_logits * sizeof(dlab_desc_logit) + spans_bytes(r);
    b[DLAB_BUFFER_ROPE] = mul(r->needs.max_tokens, info->head_dim, sizeof(float));
    b[DLAB_BUFFER_STREAM] = b[DLAB_BUFFER_NORM] = mul(rows, width, sizeof(float));
    const int64_t padded = (widest + DLAB_QACT_BLOCK - 1) / DLAB_QACT_BLOCK * DLAB_QACT_BLOCK;
    b[DLAB_BUFFER_QACT] = r->input == DLAB_ACT_F32 ? 0 : dlab_act_bytes(r->input, rows, padded);
    b[DLAB_BUFFER_Q] = b[DLAB_BUFFER_ATTN] = mul(rows, q, sizeof(float));
    b[DLAB_BUFFER_K] = b[DLAB_BUFFER_V] = mul(rows, kv, sizeof(float));
    b[DLAB_BUFFER_GATE] = b[DLAB_BUFFER_UP] = mul(rows, info->ffn, sizeof(float));
    b[DLAB_BUFFER_HEAD] = mul(r->head_rows, width, sizeof(float));
    b[DLAB_BUFFER_LOGITS] = mul(r->head_rows, info->vocab, sizeof(float));
    b[DLAB_BUFFER_TOKENS] = mul(r->max_logits, 1, sizeof(int32_t));
    b[DLAB_BUFFER_NLL] = mul(r->max_logits, 1, sizeof(double));
    b[DLAB_BUFFER_WATCH] = mul(rows, 1, sizeof(int32_t));
    const bool by_step = r->kv.k.scales == DLAB_SCALES_STEP || r->kv.v.scales == DLAB_SCALES_STEP;
    b[DLAB_BUFFER_KV_SCRATCH] = by_step ? mul(r->plan.batch_size, 4, sizeof(float)) : 0;
    dlab_attn_shape shape = {info->n_heads, info->head_dim, rows, r->needs.max_tokens};
    b[DLAB_BUFFER_ATTN_SCRATCH] = r->attention->scratch_bytes(&shape);
    const bool draws = r->plan.temperature > 0 || r->needs.own_sampling;
    b[DLAB_BUFFER_SAMPLE_SCRATCH] = draws ? mul(r->head_rows, info->vocab, 8) : 0;
}

dlab_status dlab_plan_resolve(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                              dlab_resolved *out, dlab_error *err)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    *out = (dlab_resolved){.plan = *plan, .needs = *needs};
    DLAB_TRY(resolve_names(out, m, err));
    DLAB_TRY(resolve_needs(out, info, err));
    DLAB_TRY(check_batch(out, err));
    DLAB_TRY(resolve_budget(out, err));
    DLAB_TRY(dlab_plan_reservation(out, err));
    DLAB_TRY(check_sizes(out, info, err));
    DLAB_TRY(dlab_plan_resolve_kv(out, info, err));
    size_buffers(out, info); /* needs kv */
    if (out->bytes[DLAB_BUFFER_DESC] > UINT32_MAX) {
        return DLAB_FAIL(err, DLAB_EIMPOSSIBLE,
                         "a step's descriptor of %zu bytes, at most %u: fewer sequences (batch.size), larger blocks "
                         "(kv.block_size) or fewer spans (attention.block)",
                         out->bytes[DLAB_BUFFER_DESC], UINT32_MAX);
    }
    return DLAB_OK;
}

dlab_status dlab_engine_effective(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                                  dlab_plan *out, dlab_error *err)
{
    dlab_resolved r;
    DLAB_TRY(dlab_plan_resolve(plan, m, needs, &r, err));
    *out = r.plan;
    return DLAB_OK;
}

dlab_status dlab_engine_estimate(const dlab_plan *plan, const dlab_model *m, const dlab_engine_needs *needs,
                                 size_t bytes[DLAB_POOL_N], dlab_error *err)
{
    dlab_resolved r;
    memset(bytes, 0, DLAB_POOL_N * sizeof *bytes);
    DLAB_TRY(dlab_plan_resolve(plan, m, needs, &r, err));
    for (int i = 0; i < DLAB_BUFFER_N; i++) bytes[dlab_buffer_pool((dlab_buffer)i)] += r.bytes[i];
    dlab_device_opts opts = {.threads = (int)r.plan.threads, .isa = r.plan.isa};
    for (size_t i = 0; dlab_devices[i]; i++) {
        if (strcmp(dlab_devices[i]->name, r.plan.device) != 0) continue;
        bytes[DLAB_POOL_SCRATCH] += dlab_devices[i]->own_bytes(&opts);
        bytes[DLAB_POOL_WEIGHTS] = dlab_weights_bytes(dlab_devices[i], &opts, m);
    }
    bytes[DLAB_POOL_KV] = (size_t)r.store->bytes(&r.kv);
    bytes[DLAB_POOL_SCRATCH] += (size_t)(r.swap_pieces * r.swap_piece_bytes);
    return DLAB_OK;
}
