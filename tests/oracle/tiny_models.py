"""Tiny llama models with every part that a real one has: grouped KV heads, byte-level BPE, tied and own heads, mixed types.

Random weights of a fixed seed, so that a file can be made again bit by bit. Written with the `gguf` package, which is the
format's own writer, so that our reader is tested against somebody else's idea of the format.
"""
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter, TokenType, quantize

WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT = 64, 4, 2, 16, 96, 256
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Each pair's left and right side exist before it: single bytes (Ġ is a space) or an earlier merge.
MERGES = ["Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ w", "Ġ s", "n d", "Ġa nd", "i s", "o u", "Ġ f", "e d",
          "in g", "Ġ b", "f er", "r y", "fer ry"]

# layers, eps, RoPE base, type of the embedding, own head or tied, types of the layers' matrices in turn. An engine that
# keeps an eps or a base of its own instead of the file's shows.
RECIPES = {
    "tiny-f32": (2, 1e-5, 10000.0, T.F32, False, [T.F32]),
    "tiny-q4_1": (3, 2e-2, 500.0, T.Q8_0, True, [T.Q4_1]),
    "tiny-mixed": (2, 1e-6, 100000.0, T.F16, True, [T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.F32]),
}


def byte_symbols():
    """GPT-2's printable stand-in for each byte: printable Latin-1 stays, the rest is numbered from U+0100."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols, spare = {b: chr(b) for b in keep}, 0x100
    for b in range(256):
        if b not in symbols:
            symbols[b] = chr(spare)
            spare += 1
    return [symbols[b] for b in range(256)]


def add_vocabulary(writer):
    tokens = SPECIAL + byte_symbols() + [m.replace(" ", "") for m in MERGES]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    return len(tokens)


def add_matrix(writer, rng, name, shape, kind):
    # This spread gives attention that is neither flat nor one-hot and logits with clear winners.
    values = rng.normal(0.0, 1.6 / np.sqrt(shape[1]), shape).astype(np.float32)
    writer.add_tensor(name, quantize(values, kind) if kind != T.F32 else values, raw_dtype=kind)


def add_norm(writer, rng, name):
    writer.add_tensor(name, rng.uniform(0.6, 1.4, WIDTH).astype(np.float32))


def write(name, path):
    layers, eps, rope_base, embedding, own_head, kinds = RECIPES[name]
    rng = np.random.Generator(np.random.PCG64(list(name.encode())))
    w = GGUFWriter(path, "llama")
    w.add_name(name)
    w.add_block_count(layers)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(rope_base)
    w.add_layer_norm_rms_eps(eps)
    vocab = add_vocabulary(w)
    w.add_vocab_size(vocab)
    add_matrix(w, rng, "token_embd.weight", (vocab, WIDTH), embedding)
    kind = iter(kinds * layers * 7)
    for layer in range(layers):
        p = f"blk.{layer}."
        add_norm(w, rng, p + "attn_norm.weight")
        add_matrix(w, rng, p + "attn_q.weight", (HEADS * HEAD_DIM, WIDTH), next(kind))
        add_matrix(w, rng, p + "attn_k.weight", (KV_HEADS * HEAD_DIM, WIDTH), next(kind))
        add_matrix(w, rng, p + "attn_v.weight", (KV_HEADS * HEAD_DIM, WIDTH), next(kind))
        add_matrix(w, rng, p + "attn_output.weight", (WIDTH, HEADS * HEAD_DIM), next(kind))
        add_norm(w, rng, p + "ffn_norm.weight")
        add_matrix(w, rng, p + "ffn_gate.weight", (FFN, WIDTH), next(kind))
        add_matrix(w, rng, p + "ffn_up.weight", (FFN, WIDTH), next(kind))
        add_matrix(w, rng, p + "ffn_down.weight", (WIDTH, FFN), next(kind))
    add_norm(w, rng, "output_norm.weight")
    if own_head:
        add_matrix(w, rng, "output.weight", (vocab, WIDTH), embedding)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
