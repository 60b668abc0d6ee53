/* A small well-formed llama of one layer as a GGUF image, with a real byte-level vocabulary. */
#ifndef DLAB_TESTS_ENGINE_TINY_GGUF_H
#define DLAB_TESTS_ENGINE_TINY_GGUF_H

#include "tests/engine/gguf_writer.h"

#define TINY_WIDTH    32
#define TINY_FFN      64
#define TINY_HEADS    2
#define TINY_KV_HEADS 1
#define TINY_HEAD_DIM 16

typedef struct {
    uint32_t version;
    const char *pre, *kind;                    /* tokenizer.ggml.pre and .model */
    const char *const *tokens, *const *merges; /* NULL-terminated; tokens come after the 256 bytes (if `bytes`) */
    const int *types;                          /* of `tokens`, 0-terminated; NULL: all normal */
    bool bytes, own_head;
    void (*more_keys)(gguf_writer *w);
    void (*more_tensors)(gguf_writer *w);
} tiny_options;

/* GPT-2's letter for a byte, as UTF-8; out has room for 3. */
static inline void tiny_letter(int byte, char *out)
{
    int letter = byte;
    bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!plain) letter = 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
    if (letter < 128) {
        out[0] = (char)letter;
        out[1] = 0;
    } else {
        out[0] = (char)(0xc0 | letter >> 6);
        out[1] = (char)(0x80 | (letter & 63));
        out[2] = 0;
    }
}

static inline uint64_t tiny_count(const char *const *list)
{
    uint64_t n = 0;
    while (list && list[n]) n++;
    return n;
}

static inline void tiny_vocab(gguf_writer *w, const tiny_options *o, uint64_t vocab)
{
    gw_key_str(w, "tokenizer.ggml.model", o->kind ? o->kind : "gpt2");
    gw_key_str(w, "tokenizer.ggml.pre", o->pre ? o->pre : "smollm");
    gw_key_array(w, "tokenizer.ggml.tokens", GW_STR, vocab);
    for (int b = 0; o->bytes && b < 256; b++) {
        char letter[3];
        tiny_letter(b, letter);
        gw_text(w, letter);
    }
    for (uint64_t i = 0; o->tokens && o->tokens[i]; i++) gw_text(w, o->tokens[i]);
    gw_key_array(w, "tokenizer.ggml.token_type", GW_I32, vocab);
    for (uint64_t i = 0; i < vocab - tiny_count(o->tokens); i++) gw_u32(w, 1);
    for (uint64_t i = 0; o->tokens && o->tokens[i]; i++) gw_u32(w, o->types ? (uint32_t)o->types[i] : 1);
    gw_key_array(w, "tokenizer.ggml.merges", GW_STR, tiny_count(o->merges));
    for (uint64_t i = 0; o->merges && o->merges[i]; i++) gw_text(w, o->merges[i]);
}

static inline void tiny_build(gguf_writer *w, const tiny_options *o)
{
    uint64_t vocab = (o->bytes ? 256 : 0) + tiny_count(o->tokens);
    gw_start(w, o->version ? o->version : 3);
    gw_key_u32(w, "general.alignment", GW_ALIGN);
    gw_key_str(w, "general.architecture", "llama");
    gw_key_str(w, "general.name", "tiny test");
    gw_key_u32(w, "llama.block_count", 1);
    gw_key_u32(w, "llama.context_length", 128);
    gw_key_u32(w, "llama.embedding_length", TINY_WIDTH);
    gw_key_u32(w, "llama.feed_forward_length", TINY_FFN);
    gw_key_u32(w, "llama.attention.head_count", TINY_HEADS);
    gw_key_u32(w, "llama.attention.head_count_kv", TINY_KV_HEADS);
    gw_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gw_key_f32(w, "llama.rope.freq_base", 10000);
    tiny_vocab(w, o, vocab);
    if (o->more_keys) o->more_keys(w);
    gw_tensor(w, "token_embd.weight", GW_T_Q8_0, TINY_WIDTH, vocab);
    gw_tensor(w, "blk.0.attn_norm.weight", GW_T_F32, TINY_WIDTH, 0);
    gw_tensor(w, "blk.0.attn_q.weight", GW_T_Q4_0, TINY_WIDTH, TINY_HEADS * TINY_HEAD_DIM);
    gw_tensor(w, "blk.0.attn_k.weight", GW_T_Q4_1, TINY_WIDTH, TINY_KV_HEADS * TINY_HEAD_DIM);
    gw_tensor(w, "blk.0.attn_v.weight", GW_T_F16, TINY_WIDTH, TINY_KV_HEADS * TINY_HEAD_DIM);
    gw_tensor(w, "blk.0.attn_output.weight", GW_T_BF16, TINY_HEADS * TINY_HEAD_DIM, TINY_WIDTH);
    gw_tensor(w, "blk.0.ffn_norm.weight", GW_T_F32, TINY_WIDTH, 0);
    gw_tensor(w, "blk.0.ffn_gate.weight", GW_T_Q4_1, TINY_WIDTH, TINY_FFN);
    gw_tensor(w, "blk.0.ffn_up.weight", GW_T_Q4_1, TINY_WIDTH, TINY_FFN);
    gw_tensor(w, "blk.0.ffn_down.weight", GW_T_Q4_1, TINY_FFN, TINY_WIDTH);
    gw_tensor(w, "output_norm.weight", GW_T_F32, TINY_WIDTH, 0);
    if (o->own_head) gw_tensor(w, "output.weight", GW_T_Q8_0, TINY_WIDTH, vocab);
    if (o->more_tensors) o->more_tensors(w);
    gw_finish(w);
}

#endif
