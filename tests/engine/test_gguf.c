/* A well-formed GGUF file opens and says what it is; everything else is one clear line and no crash. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/model/gguf.h"
#include "engine/model/model_own.h"
#include "tests/engine/tiny_gguf.h"

#define NAME "some folder/tiny model.gguf"

static const char *const letters[] = {"a", "b", "c", "ab", NULL};
static const char *const one_merge[] = {"a b", NULL};
static const tiny_options small = {.tokens = letters, .merges = one_merge};

/* An exact-sized copy, so that a sanitizer sees the first byte read past the end. */
static dlab_status open_copy(const void *data, size_t n, dlab_error *err)
{
    dlab_model *m = NULL;
    void *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, data, n);
    dlab_status st = dlab_model_from_memory(NAME, copy, n, &m, err);
    if (st == DLAB_OK)
        ck_assert_ptr_nonnull(m);
    else
        ck_assert_ptr_null(m);
    dlab_model_close(m);
    free(copy);
    return st;
}

/* One line that names the file and holds `expect`. */
static void check_refused(const gguf_writer *w, const char *what, dlab_status status, const char *expect)
{
    dlab_error err = {0};
    dlab_status st = open_copy(w->data, w->n, &err);
    ck_assert_msg(st == status, "%s: %s, expected %s: %s", what, dlab_status_name(st), dlab_status_name(status),
                  err.msg);
    ck_assert_int_eq(err.code, status);
    ck_assert_msg(strstr(err.msg, expect) != NULL, "%s: '%s' is not in '%s'", what, expect, err.msg);
    ck_assert_msg(strstr(err.msg, NAME) != NULL, "%s: no file in '%s'", what, err.msg);
    for (const char *p = err.msg; *p; p++)
        ck_assert_msg((unsigned char)*p >= 0x20, "%s: control byte in the message", what);
}

START_TEST(opens_a_small_model)
{
    gguf_writer w;
    dlab_model *m = NULL;
    dlab_error err = {0};
    size_t n = 0, sum = 0;
    for (uint32_t version = 2; version <= 3; version++) {
        tiny_options o = small;
        o.version = version;
        tiny_build(&w, &o);
        ck_assert_msg(dlab_model_from_memory(NAME, w.data, w.n, &m, &err) == DLAB_OK, "%s", err.msg);
        const dlab_model_info *info = dlab_model_get_info(m);
        ck_assert_str_eq(info->arch, "llama");
        ck_assert_str_eq(info->name, "tiny test");
        ck_assert_str_eq(info->type, "Q4_1 (mixed)");
        ck_assert_int_eq(info->n_layers, 1);
        ck_assert_int_eq(info->n_heads, TINY_HEADS);
        ck_assert_int_eq(info->n_kv_heads, TINY_KV_HEADS);
        ck_assert_int_eq(info->head_dim, TINY_HEAD_DIM);
        ck_assert_int_eq(info->width, TINY_WIDTH);
        ck_assert_int_eq(info->ffn, TINY_FFN);
        ck_assert_int_eq(info->vocab, 4);
        ck_assert_int_eq(info->context, 128);
        ck_assert_float_eq(info->eps, 1e-5f);
        ck_assert_float_eq(info->rope_base, 10000);
        ck_assert(info->tied_head && !info->synthetic);
        ck_assert(dlab_model_arch(m)->rope_norm);
        ck_assert_int_eq(info->step_weight_bytes, info->weight_bytes);
        ck_assert_ptr_eq(m->map, w.data);
        ck_assert_uint_eq(m->map_bytes, w.n);
        const dlab_tensor *all = dlab_model_tensors(m, &n);
        ck_assert_uint_eq(n, 11);
        for (size_t i = 0; i < n; i++) {
            sum += all[i].bytes;
            ck_assert_ptr_eq(all[i].data, gw_tensor_data(&w, all[i].name));
            ck_assert_ptr_eq(dlab_model_tensor(m, all[i].name), &all[i]);
        }
        ck_assert_int_eq(info->weight_bytes, (int64_t)sum);
        sum = 0;
        const dlab_tensor *down = dlab_model_layer_tensor(m, 0, "ffn_down.weight");
        ck_assert_int_eq(down->dims[0], TINY_FFN);
        ck_assert_int_eq(down->dims[1], TINY_WIDTH);
        ck_assert_int_eq(down->dtype, DLAB_Q4_1);
        ck_assert_ptr_null(dlab_model_layer_tensor(m, 1, "ffn_down.weight"));
        ck_assert_ptr_null(dlab_model_tensor(m, "output.weight"));
        dlab_model_close(m);
        gw_free(&w);
    }
}
END_TEST

START_TEST(an_own_head_is_not_tied)
{
    gguf_writer w;
    dlab_model *m = NULL;
    tiny_options o = small;
    o.own_head = true;
    tiny_build(&w, &o);
    ck_assert_int_eq(dlab_model_from_memory(NAME, w.data, w.n, &m, NULL), DLAB_OK);
    const dlab_model_info *info = dlab_model_get_info(m);
    ck_assert(!info->tied_head);
    ck_assert_int_eq(info->weight_bytes - info->step_weight_bytes, 4 * TINY_WIDTH / 32 * 34);
    dlab_model_close(m);
    gw_free(&w);
}
END_TEST

static void rope_factors(gguf_writer *w) { gw_tensor(w, "rope_freqs.weight", GW_T_F32, TINY_HEAD_DIM / 2, 0); }

START_TEST(rope_factors_are_exposed_and_must_be_positive)
{
    gguf_writer w;
    dlab_model *m = NULL;
    const float one = 1;
    tiny_options o = small;
    o.more_tensors = rope_factors;
    tiny_build(&w, &o);
    check_refused(&w, "zeros", DLAB_EFORMAT, "rope_freqs.weight");
    for (int i = 0; i < TINY_HEAD_DIM / 2; i++)
        memcpy(gw_tensor_data(&w, "rope_freqs.weight") + 4 * i, &one, sizeof one);
    ck_assert_int_eq(dlab_model_from_memory(NAME, w.data, w.n, &m, NULL), DLAB_OK);
    ck_assert_ptr_nonnull(dlab_model_tensor(m, "rope_freqs.weight"));
    dlab_model_close(m);
    gw_free(&w);
}
END_TEST

START_TEST(truncation_at_every_byte_is_an_error)
{
    gguf_writer w;
    tiny_build(&w, &small);
    ck_assert_int_eq(open_copy(w.data, w.n, NULL), DLAB_OK);
    for (size_t n = 0; n < w.n; n++) {
        dlab_error err = {0};
        dlab_status st = open_copy(w.data, n, &err);
        ck_assert_msg(st == DLAB_EFORMAT, "cut at %zu of %zu: %s", n, w.n, dlab_status_name(st));
        ck_assert_msg(strstr(err.msg, NAME) != NULL, "cut at %zu: '%s'", n, err.msg);
    }
    gw_free(&w);
}
END_TEST

START_TEST(no_changed_byte_crashes)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    gguf_writer w;
    size_t refused = 0;
    tiny_build(&w, &small);
    for (size_t i = 0; i < w.data_at; i++)
        for (size_t k = 0; k < sizeof masks; k++) {
            w.data[i] ^= masks[k];
            refused += open_copy(w.data, w.n, NULL) != DLAB_OK;
            w.data[i] ^= masks[k];
        }
    ck_assert_uint_gt(refused, w.data_at);
    gw_free(&w);
}
END_TEST

/* value [bytes] is written `skip` bytes behind the name, or at `skip` when there is none. */
typedef struct {
    const char *what, *name;
    size_t skip, bytes;
    uint64_t value;
    dlab_status status;
    const char *expect;
} surgery;

#define TYPE2   (4 + 2 * 8)     /* behind the name of a matrix: its type */
#define OFFSET2 (4 + 2 * 8 + 4) /* and its place */

static const surgery surgeries[] = {
    {"magic", NULL, 0, 4, 0x46554746, DLAB_EFORMAT, "not a GGUF file"},
    {"version 1", NULL, 4, 4, 1, DLAB_ENOTBUILT, "version 1"},
    {"version 4", NULL, 4, 4, 4, DLAB_ENOTBUILT, "version 4"},
    {"big endian", NULL, 4, 4, 0x03000000, DLAB_ENOTBUILT, "big-endian"},
    {"2^63 tensors", NULL, 8, 8, 1ull << 63, DLAB_EFORMAT, "9223372036854775808 tensors"},
    {"2^63 keys", NULL, 16, 8, 1ull << 63, DLAB_EFORMAT, "9223372036854775808 keys"},
    {"one tensor too many", NULL, 8, 8, 12, DLAB_EFORMAT, "offset"},
    {"2^63 bytes of a key", NULL, 24, 8, 1ull << 63, DLAB_EFORMAT, "offset 32"},
    {"2^64-1 bytes of a key", NULL, 24, 8, UINT64_MAX, DLAB_EFORMAT, "offset 32"},
    {"2^63 bytes of a string", "general.architecture", 4, 8, 1ull << 63, DLAB_EFORMAT, "cut short"},
    {"2^63 elements", "tokenizer.ggml.tokens", 8, 8, 1ull << 63, DLAB_EFORMAT, "9223372036854775808 elements"},
    {"2^63 numbers", "tokenizer.ggml.token_type", 8, 8, 1ull << 63, DLAB_EFORMAT, "cut short"},
    {"value type", "llama.block_count", 0, 4, 99, DLAB_EFORMAT, "type 99"},
    {"element type", "tokenizer.ggml.tokens", 4, 4, 77, DLAB_EFORMAT, "type 77"},
    {"control byte in a key", NULL, 33, 1, '\n', DLAB_EFORMAT, "control bytes"},
    {"no dimension", "token_embd.weight", 0, 4, 0, DLAB_EFORMAT, "0 dimensions"},
    {"five dimensions", "token_embd.weight", 0, 4, 5, DLAB_EFORMAT, "5 dimensions"},
    {"zero dimension", "output_norm.weight", 4, 8, 0, DLAB_EFORMAT, "'output_norm.weight' has a dimension of 0"},
    {"2^63 columns", "token_embd.weight", 4, 8, 1ull << 63, DLAB_EFORMAT, "2^63"},
    {"2^62 rows", "token_embd.weight", 12, 8, 1ull << 62, DLAB_EFORMAT, "2^63"},
    {"2^57 rows", "token_embd.weight", 12, 8, 1ull << 57, DLAB_EFORMAT, "'token_embd.weight'"},
    {"broken blocks", "blk.0.attn_k.weight", 4, 8, 33, DLAB_EFORMAT, "not a multiple of Q4_1's 32"},
    {"Q6_K", "blk.0.attn_q.weight", TYPE2, 4, 14, DLAB_ENOTBUILT,
     "tensor 'blk.0.attn_q.weight' has type Q6_K (14): not built; built are F32, F16, Q4_0, Q4_1, Q8_0, BF16"},
    {"no such type", "blk.0.attn_q.weight", TYPE2, 4, 200, DLAB_ENOTBUILT, "unknown (200)"},
    {"unaligned tensor", "blk.0.attn_q.weight", OFFSET2, 8, 8, DLAB_EFORMAT, "not a multiple of 32"},
    {"tensor past the end", "blk.0.attn_q.weight", OFFSET2, 8, 1ull << 40, DLAB_EFORMAT, "ends past the file"},
    {"tensor wraps", "blk.0.attn_q.weight", OFFSET2, 8, UINT64_MAX - 31, DLAB_EFORMAT, "ends past the file"},
    {"bytes and place wrap", "blk.0.attn_norm.weight", 4, 8, (1ull << 62) - 8, DLAB_EFORMAT, "ends past the file"},
    {"overlap", "blk.0.attn_q.weight", OFFSET2, 8, 0, DLAB_EFORMAT, "overlaps"},
    {"alignment 0", "general.alignment", 4, 4, 0, DLAB_EFORMAT, "general.alignment"},
    {"alignment 4", "general.alignment", 4, 4, 4, DLAB_EFORMAT, "power of two"},
    {"alignment 48", "general.alignment", 4, 4, 48, DLAB_EFORMAT, "power of two"},
    {"alignment 2^31", "general.alignment", 4, 4, 1u << 31, DLAB_EFORMAT, "cut short"},
    {"not an integer", "llama.block_count", 0, 4, GW_F32, DLAB_EFORMAT, "expected an integer"},
    {"not a number", "llama.rope.freq_base", 0, 4, GW_U32, DLAB_EFORMAT, "expected a number"},
    {"no layers", "llama.block_count", 4, 4, 0, DLAB_EFORMAT, "llama.block_count"},
    {"2^32-1 layers", "llama.block_count", 4, 4, UINT32_MAX, DLAB_EFORMAT, "llama.block_count"},
    {"three heads", "llama.attention.head_count", 4, 4, 3, DLAB_EFORMAT, "heads"},
    {"uneven KV heads", "llama.attention.head_count_kv", 4, 4, 4, DLAB_EFORMAT, "evenly"},
    {"eps NaN", "llama.attention.layer_norm_rms_epsilon", 4, 4, 0x7fc00000, DLAB_EFORMAT, "not finite"},
    {"eps 2", "llama.attention.layer_norm_rms_epsilon", 4, 4, 0x40000000, DLAB_EFORMAT, "expected 0 to 1"},
    {"RoPE base 0", "llama.rope.freq_base", 4, 4, 0, DLAB_EFORMAT, "more than 0"},
    {"RoPE base inf", "llama.rope.freq_base", 4, 4, 0x7f800000, DLAB_EFORMAT, "not finite"},
    {"a second layer", "llama.block_count", 4, 4, 2, DLAB_EFORMAT, "'blk.1.attn_norm.weight' [32, 1] is missing"},
    {"other shape", "blk.0.attn_k.weight", 12, 8, 8, DLAB_EFORMAT, "is [32, 8, 1, 1], expected [32, 16]"},
    {"f16 norm", "output_norm.weight", 12, 4, GW_T_F16, DLAB_ENOTBUILT, "'output_norm.weight' has type F16"},
};

START_TEST(surgery_is_refused_by_name)
{
    const surgery *s = &surgeries[_i];
    gguf_writer w;
    tiny_build(&w, &small);
    memcpy(w.data + (s->name ? gw_after(&w, s->name) : 0) + s->skip, &s->value, s->bytes);
    check_refused(&w, s->what, s->status, s->expect);
    gw_free(&w);
}
END_TEST

static const char *const required_keys[] = {
    "general.architecture",      "llama.block_count",
    "llama.context_length",      "llama.embedding_length",
    "llama.feed_forward_length", "llama.attention.head_count",
    "tokenizer.ggml.tokens",     "llama.attention.layer_norm_rms_epsilon",
};

START_TEST(a_missing_key_is_named)
{
    gguf_writer w;
    const char *key = required_keys[_i];
    char expect[128];
    tiny_build(&w, &small);
    w.data[gw_after(&w, key) - strlen(key)] = 'X';
    /* Without tokens the vocabulary's size may still come from its own key. */
    snprintf(expect, sizeof expect, "the key '%s' is missing",
             strcmp(key, "tokenizer.ggml.tokens") == 0 ? "llama.vocab_size" : key);
    check_refused(&w, key, DLAB_EFORMAT, expect);
    gw_free(&w);
}
END_TEST

START_TEST(a_missing_tensor_is_named)
{
    static const char *const tensors[] = {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight",
                                          "blk.0.ffn_down.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        gguf_writer w;
        char expect[128];
        tiny_build(&w, &small);
        w.data[gw_after(&w, tensors[i]) - 1] = 'X';
        snprintf(expect, sizeof expect, "the tensor '%s'", tensors[i]);
        check_refused(&w, tensors[i], DLAB_EFORMAT, expect);
        gw_free(&w);
    }
}
END_TEST

START_TEST(another_architecture_is_named)
{
    gguf_writer w;
    tiny_build(&w, &small);
    memcpy(w.data + gw_after(&w, "general.architecture") + 4 + 8, "qwen2", 5);
    check_refused(&w, "qwen2", DLAB_ENOTBUILT, "the architecture 'qwen2' is not built; built: llama");
    gw_free(&w);
}
END_TEST

START_TEST(duplicates_are_named)
{
    gguf_writer w;
    tiny_build(&w, &small);
    memcpy(w.data + gw_after(&w, "llama.context_length") - 20, "llama.rope.freq_base", 20);
    check_refused(&w, "key", DLAB_EFORMAT, "key 'llama.rope.freq_base' is there twice");
    gw_free(&w);
    tiny_build(&w, &small);
    w.data[gw_after(&w, "blk.0.attn_k.weight") - 8] = 'q';
    check_refused(&w, "tensor", DLAB_EFORMAT, "tensor 'blk.0.attn_q.weight' is there twice");
    gw_free(&w);
}
END_TEST

/* A number that is not finite: where the element or block begins, and the bits put `skip` bytes behind. */
static const struct {
    const char *tensor;
    size_t at, skip, bytes;
    uint32_t bits;
    const char *expect;
} infinities[] = {
    {"blk.0.attn_norm.weight", 5 * 4, 0, 4, 0x7fc00000, "weight that is not finite in element 5 of 32"},
    {"output_norm.weight", 31 * 4, 0, 4, 0xff800000, "element 31 of 32"},
    {"blk.0.attn_v.weight", 100 * 2, 0, 2, 0x7e00, "element 100 of 512"},
    {"blk.0.attn_v.weight", 511 * 2, 0, 2, 0xfc00, "element 511 of 512"},
    {"blk.0.attn_output.weight", 7 * 2, 0, 2, 0x7fc0, "element 7 of 1024"},
    {"token_embd.weight", 3 * 34, 0, 2, 0x7e00, "scale that is not finite in block 3 of 4"},
    {"blk.0.attn_q.weight", 31 * 18, 0, 2, 0x7c00, "block 31 of 32"},
    {"blk.0.attn_k.weight", 2 * 20, 0, 2, 0x7c01, "block 2 of 16"},
    {"blk.0.ffn_down.weight", 9 * 20, 2, 2, 0xfe00, "block 9 of 64"},
};

START_TEST(weights_that_are_not_finite_are_found)
{
    gguf_writer w;
    char offset[64];
    const char *tensor = infinities[_i].tensor;
    tiny_build(&w, &small);
    uint8_t *p = gw_tensor_data(&w, tensor) + infinities[_i].at;
    memcpy(p + infinities[_i].skip, &infinities[_i].bits, infinities[_i].bytes);
    snprintf(offset, sizeof offset, "offset %zu: tensor '%s'", (size_t)(p - w.data), tensor);
    check_refused(&w, tensor, DLAB_EFORMAT, infinities[_i].expect);
    check_refused(&w, tensor, DLAB_EFORMAT, offset);
    gw_free(&w);
}
END_TEST

START_TEST(the_largest_weights_are_finite)
{
    gguf_writer w;
    const uint16_t f16 = 0x7bff, bf16 = 0x7f7f;
    const uint32_t f32 = 0xff7fffff;
    tiny_build(&w, &small);
    memcpy(gw_tensor_data(&w, "blk.0.attn_v.weight"), &f16, sizeof f16);
    memcpy(gw_tensor_data(&w, "blk.0.attn_output.weight"), &bf16, sizeof bf16);
    memcpy(gw_tensor_data(&w, "output_norm.weight"), &f32, sizeof f32);
    memset(gw_tensor_data(&w, "token_embd.weight") + 2, 0xff, 32);
    ck_assert_int_eq(open_copy(w.data, w.n, NULL), DLAB_OK);
    gw_free(&w);
}
END_TEST

/* Keys and tensors that a file may have and that would change the model. */
static void yarn(gguf_writer *w) { gw_key_str(w, "llama.rope.scaling.type", "yarn"); }
static void no_scaling(gguf_writer *w)
{
    gw_key_str(w, "llama.rope.scaling.type", "none");
    gw_key_f32(w, "llama.rope.scaling.factor", 4);
}
static void old_scaling(gguf_writer *w) { gw_key_f32(w, "llama.rope.scale_linear", 4); }
static void experts(gguf_writer *w) { gw_key_u32(w, "llama.expert_count", 8); }
static void window(gguf_writer *w) { gw_key_u32(w, "llama.attention.sliding_window", 4096); }
static void half_rotated(gguf_writer *w) { gw_key_u32(w, "llama.rope.dimension_count", 8); }
static void short_values(gguf_writer *w) { gw_key_u32(w, "llama.attention.value_length", 8); }
static void by_layer(gguf_writer *w)
{
    gw_key_array(w, "llama.attention.key_length", GW_U32, 1);
    gw_u32(w, 16);
}
static void deep(gguf_writer *w)
{
    gw_key_array(w, "x.deep", GW_ARRAY, 1);
    for (int i = 0; i < 8; i++) {
        gw_u32(w, GW_ARRAY);
        gw_u64(w, 1);
    }
    gw_u32(w, GW_U32);
    gw_u64(w, 0);
}
static void shallow(gguf_writer *w)
{
    gw_key_array(w, "x.shallow", GW_ARRAY, 2);
    for (int i = 0; i < 2; i++) {
        gw_u32(w, GW_STR);
        gw_u64(w, 1);
        gw_text(w, "fine");
    }
}
static void q_bias(gguf_writer *w) { gw_tensor(w, "blk.0.attn_q.bias", GW_T_F32, TINY_WIDTH, 0); }
static void padded_layer(gguf_writer *w) { gw_tensor(w, "blk.00.attn_norm.weight", GW_T_F32, TINY_WIDTH, 0); }
static void third_layer(gguf_writer *w) { gw_tensor(w, "blk.2.attn_norm.weight", GW_T_F32, TINY_WIDTH, 0); }

static const struct {
    void (*keys)(gguf_writer *w), (*tensors)(gguf_writer *w);
    dlab_status status;
    const char *expect;
} extras[] = {
    {yarn, NULL, DLAB_ENOTBUILT, "'llama.rope.scaling.type' is 'yarn'"},
    {no_scaling, NULL, DLAB_OK, NULL},
    {old_scaling, NULL, DLAB_ENOTBUILT, "llama.rope.scale_linear"},
    {experts, NULL, DLAB_ENOTBUILT, "llama.expert_count"},
    {window, NULL, DLAB_ENOTBUILT, "llama.attention.sliding_window"},
    {half_rotated, NULL, DLAB_ENOTBUILT, "RoPE over 8"},
    {short_values, NULL, DLAB_ENOTBUILT, "values of 8"},
    {by_layer, NULL, DLAB_ENOTBUILT, "a value for each layer"},
    {deep, NULL, DLAB_EFORMAT, "nested more than 4 deep"},
    {shallow, NULL, DLAB_OK, NULL},
    {NULL, q_bias, DLAB_ENOTBUILT, "'blk.0.attn_q.bias' is not known here"},
    {NULL, padded_layer, DLAB_ENOTBUILT, "'blk.00.attn_norm.weight' is not known here"},
    {NULL, third_layer, DLAB_ENOTBUILT, "'blk.2.attn_norm.weight' is not known here"},
};

START_TEST(what_would_be_left_out_is_refused)
{
    gguf_writer w;
    tiny_options o = small;
    o.more_keys = extras[_i].keys;
    o.more_tensors = extras[_i].tensors;
    tiny_build(&w, &o);
    if (extras[_i].status == DLAB_OK)
        ck_assert_int_eq(open_copy(w.data, w.n, NULL), DLAB_OK);
    else
        check_refused(&w, extras[_i].expect, extras[_i].status, extras[_i].expect);
    gw_free(&w);
}
END_TEST

static uint64_t hash_of(const gguf_writer *w)
{
    dlab_model *m = NULL;
    ck_assert_int_eq(dlab_model_from_memory(NAME, w->data, w->n, &m, NULL), DLAB_OK);
    uint64_t hash = dlab_model_get_info(m)->hash;
    dlab_model_close(m);
    return hash;
}

START_TEST(the_hash_follows_the_content)
{
    gguf_writer w;
    tiny_build(&w, &small);
    uint64_t hash = hash_of(&w);
    ck_assert_uint_eq(hash, hash_of(&w));
    gw_tensor_data(&w, "blk.0.ffn_up.weight")[7] = 1;
    uint64_t weight = hash_of(&w);
    ck_assert_uint_ne(hash, weight);
    w.data[gw_after(&w, "llama.context_length") + 4] = 64;
    ck_assert_uint_ne(hash_of(&w), weight);
    gw_free(&w);
}
END_TEST

/* ---- files ---------------------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/dlab gguf XXXXXX";

static void path_of(char *path, size_t size, const char *name) { snprintf(path, size, "%s/%s", folder, name); }

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static void check_file_refused(const char *path, dlab_status status, const char *expect)
{
    dlab_model *m = NULL;
    dlab_error err = {0};
    ck_assert_int_eq(dlab_model_open(path, &m, &err), status);
    ck_assert_ptr_null(m);
    ck_assert_msg(strstr(err.msg, expect) && strstr(err.msg, path), "'%s'", err.msg);
}

START_TEST(files_are_opened_or_refused_in_one_line)
{
    gguf_writer w;
    dlab_model *m = NULL;
    char path[256];
    tiny_options o = small;
    tiny_build(&w, &o);
    path_of(path, sizeof path, "a model.gguf");
    write_file(path, w.data, w.n);
    ck_assert_int_eq(dlab_model_open(path, &m, NULL), DLAB_OK);
    ck_assert_str_eq(dlab_model_get_info(m)->name, "tiny test");
    dlab_model_close(m);
    w.data[gw_after(&w, "general.name") - 1] = 'X';
    write_file(path, w.data, w.n);
    ck_assert_int_eq(dlab_model_open(path, &m, NULL), DLAB_OK);
    ck_assert_str_eq(dlab_model_get_info(m)->name, "a model");
    dlab_model_close(m);
    write_file(path, w.data, w.n - 1);
    check_file_refused(path, DLAB_EFORMAT, "cut short");
    write_file(path, "", 0);
    check_file_refused(path, DLAB_EFORMAT, "is empty");
    write_file(path, "hello, this is text", 19);
    check_file_refused(path, DLAB_EFORMAT, "not a GGUF file");
    unlink(path);
    check_file_refused(path, DLAB_EIO, "No such file");
    check_file_refused(folder, DLAB_EIO, "is a folder");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    check_file_refused(path, DLAB_EIO, "not a regular file");
    unlink(path);
    gw_free(&w);
}
END_TEST

START_TEST(a_name_with_control_bytes_stays_one_line)
{
    gguf_writer w;
    dlab_model *m = NULL;
    tiny_build(&w, &small);
    w.data[gw_after(&w, "general.name") + 4 + 8 + 4] = '\n'; /* the space of "tiny test" */
    w.data[gw_after(&w, "general.name") + 4 + 8 + 8] = 0xff;
    ck_assert_int_eq(dlab_model_from_memory(NAME, w.data, w.n, &m, NULL), DLAB_OK);
    ck_assert_str_eq(dlab_model_get_info(m)->name, "tiny?tes?");
    dlab_model_close(m);
    gw_free(&w);
}
END_TEST

int main(void)
{
    if (!mkdtemp(folder)) return 1;
    Suite *s = suite_create("gguf");
    TCase *c = tcase_create("gguf");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, opens_a_small_model);
    tcase_add_test(c, an_own_head_is_not_tied);
    tcase_add_test(c, rope_factors_are_exposed_and_must_be_positive);
    tcase_add_test(c, truncation_at_every_byte_is_an_error);
    tcase_add_test(c, no_changed_byte_crashes);
    tcase_add_loop_test(c, surgery_is_refused_by_name, 0, sizeof surgeries / sizeof *surgeries);
    tcase_add_loop_test(c, a_missing_key_is_named, 0, sizeof required_keys / sizeof *required_keys);
    tcase_add_test(c, a_missing_tensor_is_named);
    tcase_add_test(c, another_architecture_is_named);
    tcase_add_test(c, duplicates_are_named);
    tcase_add_loop_test(c, weights_that_are_not_finite_are_found, 0, sizeof infinities / sizeof *infinities);
    tcase_add_test(c, the_largest_weights_are_finite);
    tcase_add_loop_test(c, what_would_be_left_out_is_refused, 0, sizeof extras / sizeof *extras);
    tcase_add_test(c, the_hash_follows_the_content);
    tcase_add_test(c, files_are_opened_or_refused_in_one_line);
    tcase_add_test(c, a_name_with_control_bytes_stays_one_line);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    rmdir(folder);
    return failed ? 1 : 0;
}
