/* Llama and models of its shape (SmolLM2, Mistral, TinyLlama): RMSNorm, rotated queries and keys, grouped-query attention,
 * SwiGLU. GGUF permutes the rows of attn_q and attn_k, so that RoPE pairs neighbours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/arch.h"
#include "engine/model/gguf.h"

#define MAX_LAYERS  4096
#define MAX_HEADS   4096
#define MAX_WIDTH   (1 << 20)
#define MAX_VOCAB   (1 << 24)
#define MAX_CONTEXT (1 << 30)

/* Every "llama." key that is read here or cannot change a result. Any other is refused: it would be a part of the model
 * that is silently left out. */
static const char *const known_keys[] = {
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.key_length",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.attention.value_length",
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.expert_count",
    "llama.expert_used_count",
    "llama.feed_forward_length",
    "llama.rope.dimension_count",
    "llama.rope.freq_base",
    "llama.rope.scale_linear",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.finetuned",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.type",
    "llama.tensor_data_layout",
    "llama.vocab_size",
};

static dlab_status check_keys(const dlab_gguf *g, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    dlab_gguf_str key = {0};
    for (size_t i = 0; dlab_gguf_key(g, i, &key); i++) {
        bool known = key.n < 6 || memcmp(key.text, "llama.", 6) != 0;
        for (size_t k = 0; !known && k < sizeof known_keys / sizeof *known_keys; k++)
            known = dlab_gguf_str_is(key, known_keys[k]);
        if (!known)
            return DLAB_FAIL(err, DLAB_ENOTBUILT,
                             "%s: the key '%s' is not known here and may change the model: not built",
                             dlab_gguf_label(g), dlab_gguf_show(shown, key));
    }
    return DLAB_OK;
}

static dlab_status read_int(const dlab_gguf *g, const char *key, int64_t max, int32_t *out, dlab_error *err)
{
    int64_t v = 0;
    if (dlab_gguf_is_array(g, key))
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the key '%s' has a value for each layer: not built; one for all is",
                         dlab_gguf_label(g), key);
    DLAB_TRY(dlab_gguf_get_int(g, key, 1, max, &v, err));
    *out = (int32_t)v;
    return DLAB_OK;
}

/* Leaves *out alone when the key is absent. */
static dlab_status maybe_int(const dlab_gguf *g, const char *key, int64_t max, int32_t *out, dlab_error *err)
{
    return dlab_gguf_has(g, key) ? read_int(g, key, max, out, err) : DLAB_OK;
}

static dlab_status read_heads(const dlab_gguf *g, dlab_model_info *info, dlab_error *err)
{
    int32_t value_length = 0;
    DLAB_TRY(read_int(g, "llama.attention.head_count", MAX_HEADS, &info->n_heads, err));
    info->n_kv_heads = info->n_heads;
    DLAB_TRY(maybe_int(g, "llama.attention.head_count_kv", MAX_HEADS, &info->n_kv_heads, err));
    if (info->n_heads % info->n_kv_heads != 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: %d query heads cannot share %d key heads evenly", dlab_gguf_label(g),
                         info->n_heads, info->n_kv_heads);
    if (dlab_gguf_has(g, "llama.attention.key_length"))
        DLAB_TRY(read_int(g, "llama.attention.key_length", MAX_WIDTH, &info->head_dim, err));
    else if (info->width % info->n_heads == 0)
        info->head_dim = info->width / info->n_heads;
    else
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: a width of %d cannot be shared evenly by %d heads", dlab_gguf_label(g),
                         info->width, info->n_heads);
    value_length = info->head_dim;
    DLAB_TRY(maybe_int(g, "llama.attention.value_length", MAX_WIDTH, &value_length, err));
    if (value_length != info->head_dim)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: keys of %d and values of %d elements: not built; equal lengths are",
                         dlab_gguf_label(g), info->head_dim, value_length);
    if (info->n_heads * (int64_t)info->head_dim > MAX_WIDTH)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: %d heads of %d elements, expected at most %d elements together",
                         dlab_gguf_label(g), info->n_heads, info->head_dim, MAX_WIDTH);
    return DLAB_OK;
}

static dlab_status check_scaling(const dlab_gguf *g, dlab_error *err)
{
    char shown[DLAB_GGUF_SHOWN];
    dlab_gguf_str type = {0};
    /* Older files scale without naming a type. */
    static const char *const factors[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
    if (dlab_gguf_has(g, "llama.rope.scaling.type")) {
        DLAB_TRY(dlab_gguf_get_str(g, "llama.rope.scaling.type", &type, err));
        if (dlab_gguf_str_is(type, "none")) return DLAB_OK;
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the key 'llama.rope.scaling.type' is '%s': not built; 'none' is",
                         dlab_gguf_label(g), dlab_gguf_show(shown, type));
    }
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double factor = 1;
        if (!dlab_gguf_has(g, factors[i])) continue;
        DLAB_TRY(dlab_gguf_get_float(g, factors[i], &factor, err));
        if (factor != 1.0)
            return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the key '%s' is %g: not built; 1 is", dlab_gguf_label(g),
                             factors[i], factor);
    }
    return DLAB_OK;
}

static dlab_status read_rope(const dlab_gguf *g, dlab_model_info *info, dlab_error *err)
{
    int32_t rotated = info->head_dim;
    double base = 10000;
    DLAB_TRY(maybe_int(g, "llama.rope.dimension_count", MAX_WIDTH, &rotated, err));
    if (rotated != info->head_dim)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: RoPE over %d of a head's %d elements: not built; over all is",
                         dlab_gguf_label(g), rotated, info->head_dim);
    if (info->head_dim % 2 != 0)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: heads of %d elements, expected an even number", dlab_gguf_label(g),
                         info->head_dim);
    if (dlab_gguf_has(g, "llama.rope.freq_base")) DLAB_TRY(dlab_gguf_get_float(g, "llama.rope.freq_base", &base, err));
    info->rope_base = (float)base;
    if (!(info->rope_base > 0 && isfinite(info->rope_base)))
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the key 'llama.rope.freq_base' is %g, expected more than 0",
                         dlab_gguf_label(g), base);
    return check_scaling(g, err);
}

/* The vocabulary's own length, or the key of files that carry no vocabulary. */
static dlab_status read_vocab(const dlab_gguf *g, dlab_model_info *info, dlab_error *err)
{
    dlab_gguf_array tokens = {0};
    if (!dlab_gguf_has(g, "tokenizer.ggml.tokens"))
        return read_int(g, "llama.vocab_size", MAX_VOCAB, &info->vocab, err);
    DLAB_TRY(dlab_gguf_get_strings(g, "tokenizer.ggml.tokens", &tokens, err));
    if (tokens.left < 1 || tokens.left > MAX_VOCAB)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the key 'tokenizer.ggml.tokens' has %zu entries, expected 1 to %d",
                         dlab_gguf_label(g), tokens.left, MAX_VOCAB);
    info->vocab = (int32_t)tokens.left;
    return DLAB_OK;
}

static dlab_status llama_read(const dlab_gguf *g, dlab_model_info *info, dlab_error *err)
{
    int64_t experts = 0;
    double eps = 0;
    DLAB_TRY(check_keys(g, err));
    if (dlab_gguf_has(g, "llama.expert_count"))
        DLAB_TRY(dlab_gguf_get_int(g, "llama.expert_count", 0, INT32_MAX, &experts, err));
    if (experts > 0)
        return DLAB_FAIL(err, DLAB_ENOTBUILT,
                         "%s: the key 'llama.expert_count' is %lld: mixtures of experts are not built",
                         dlab_gguf_label(g), (long long)experts);
    DLAB_TRY(read_int(g, "llama.block_count", MAX_LAYERS, &info->n_layers, err));
    DLAB_TRY(read_int(g, "llama.context_length", MAX_CONTEXT, &info->context, err));
    DLAB_TRY(read_int(g, "llama.embedding_length", MAX_WIDTH, &info->width, err));
    DLAB_TRY(read_int(g, "llama.feed_forward_length", MAX_WIDTH, &info->ffn, err));
    DLAB_TRY(read_heads(g, info, err));
    DLAB_TRY(read_rope(g, info, err));
    DLAB_TRY(dlab_gguf_get_float(g, "llama.attention.layer_norm_rms_epsilon", &eps, err));
    if (!(eps >= 0 && eps < 1))
        return DLAB_FAIL(err, DLAB_EFORMAT,
                         "%s: the key 'llama.attention.layer_norm_rms_epsilon' is %g, expected 0 to 1",
                         dlab_gguf_label(g), eps);
    info->eps = (float)eps;
    return read_vocab(g, info, err);
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

typedef enum { DIM_NONE, DIM_WIDTH, DIM_FFN, DIM_Q, DIM_KV, DIM_VOCAB, DIM_HALF_HEAD } dim;

typedef struct {
    const char *name;
    dim inner, outer; /* outer DIM_NONE: a vector, which must be f32 */
    bool optional;
} tensor_row;

static const tensor_row global_rows[] = {
    {"token_embd.weight", DIM_WIDTH, DIM_VOCAB, false},
    {"output_norm.weight", DIM_WIDTH, DIM_NONE, false},
    {"output.weight", DIM_WIDTH, DIM_VOCAB, true}, /* absent: the embedding is the head */
    {"rope_freqs.weight", DIM_HALF_HEAD, DIM_NONE, true},
};

static const tensor_row layer_rows[] = {
    {"attn_norm.weight", DIM_WIDTH, DIM_NONE, false}, {"attn_q.weight", DIM_WIDTH, DIM_Q, false},
    {"attn_k.weight", DIM_WIDTH, DIM_KV, false},      {"attn_v.weight", DIM_WIDTH, DIM_KV, false},
    {"attn_output.weight", DIM_Q, DIM_WIDTH, false},  {"ffn_norm.weight", DIM_WIDTH, DIM_NONE, false},
    {"ffn_gate.weight", DIM_WIDTH, DIM_FFN, false},   {"ffn_up.weight", DIM_WIDTH, DIM_FFN, false},
    {"ffn_down.weight", DIM_FFN, DIM_WIDTH, false},
};

#define N_GLOBAL_ROWS (sizeof global_rows / sizeof *global_rows)
#define N_LAYER_ROWS  (sizeof layer_rows / sizeof *layer_rows)

static int64_t dim_size(const dlab_model_info *info, dim d)
{
    switch (d) {
    case DIM_NONE:
        return 1;
    case DIM_WIDTH:
        return info->width;
    case DIM_FFN:
        return info->ffn;
    case DIM_Q:
        return (int64_t)info->n_heads * info->head_dim;
    case DIM_KV:
        return (int64_t)info->n_kv_heads * info->head_dim;
    case DIM_VOCAB:
        return info->vocab;
    case DIM_HALF_HEAD:
        return info->head_dim / 2;
    }
    return 0;
}

/* Adds to *n_found. */
static dlab_status check_tensor(const dlab_model *m, const tensor_row *row, const char *name, size_t *n_found,
                                dlab_error *err)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    const dlab_tensor *t = dlab_model_tensor(m, name);
    long long inner = (long long)dim_size(info, row->inner), outer = (long long)dim_size(info, row->outer);
    if (!t && row->optional) return DLAB_OK;
    if (!t)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the tensor '%s' [%lld, %lld] is missing", dlab_model_label(m), name,
                         inner, outer);
    if (t->dims[0] != inner || t->dims[1] != outer || t->dims[2] != 1 || t->dims[3] != 1)
        return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the tensor '%s' is [%lld, %lld, %lld, %lld], expected [%lld, %lld]",
                         dlab_model_label(m), name, (long long)t->dims[0], (long long)t->dims[1], (long long)t->dims[2],
                         (long long)t->dims[3], inner, outer);
    if (row->outer == DIM_NONE && t->dtype != DLAB_F32)
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: the tensor '%s' has type %s: not built for a vector; F32 is",
                         dlab_model_label(m), name, dlab_gguf_type_name(t->dtype));
    ++*n_found;
    return DLAB_OK;
}

static bool is_known(const dlab_model_info *info, const char *name)
{
    char rebuilt[2 * DLAB_TENSOR_NAME]; /* compared whole, so that "blk.07." is not taken for layer 7 */
    for (size_t i = 0; i < N_GLOBAL_ROWS; i++)
        if (strcmp(name, global_rows[i].name) == 0) return true;
    if (strncmp(name, "blk.", 4) != 0) return false;
    long layer = strtol(name + 4, NULL, 10);
    if (layer < 0 || layer >= info->n_layers) return false;
    for (size_t i = 0; i < N_LAYER_ROWS; i++) {
        snprintf(rebuilt, sizeof rebuilt, "blk.%ld.%s", layer, layer_rows[i].name);
        if (strcmp(name, rebuilt) == 0) return true;
    }
    return false;
}

/* Angles are divided by them. */
static dlab_status check_rope_factors(const dlab_model *m, dlab_error *err)
{
    const dlab_tensor *t = dlab_model_tensor(m, "rope_freqs.weight");
    for (int64_t i = 0; t && i < t->dims[0]; i++) {
        float f = ((const float *)t->data)[i];
        if (!(f > 0 && isfinite(f)))
            return DLAB_FAIL(err, DLAB_EFORMAT, "%s: the tensor '%s' has %g as element %lld, expected more than 0",
                             dlab_model_label(m), t->name, (double)f, (long long)i);
    }
    return DLAB_OK;
}

static dlab_status llama_check(const dlab_model *m, dlab_error *err)
{
    const dlab_model_info *info = dlab_model_get_info(m);
    size_t n_found = 0, n = 0;
    char name[DLAB_TENSOR_NAME];
    const dlab_tensor *all = dlab_model_tensors(m, &n);
    for (size_t i = 0; i < N_GLOBAL_ROWS; i++)
        DLAB_TRY(check_tensor(m, &global_rows[i], global_rows[i].name, &n_found, err));
    for (int layer = 0; layer < info->n_layers; layer++)
        for (size_t i = 0; i < N_LAYER_ROWS; i++) {
            snprintf(name, sizeof name, "blk.%d.%s", layer, layer_rows[i].name);
            DLAB_TRY(check_tensor(m, &layer_rows[i], name, &n_found, err));
        }
    for (size_t i = 0; i < n && n_found < n; i++)
        if (!is_known(info, all[i].name))
            return DLAB_FAIL(err, DLAB_ENOTBUILT,
                             "%s: the tensor '%s' is not known here: leaving it out would change the model",
                             dlab_model_label(m), all[i].name);
    return check_rope_factors(m, err);
}

const dlab_arch dlab_arch_llama = {
    .name = "llama",
    .summary = "Llama, SmolLM2, Mistral: RMSNorm, RoPE on neighbours, grouped-query attention, SwiGLU",
    .rope_norm = true,
    .read = llama_read,
    .check = llama_check,
};
