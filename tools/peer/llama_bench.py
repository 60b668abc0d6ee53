#!/usr/bin/env python3
"""llama.cpp through its Python binding, with llama-bench's flags and llama-bench's JSON lines.

For those who have no llama-bench: `pip install llama-cpp-python` is enough. It calls the library's C interface directly;
Python's share is filling a batch of a few numbers a step. Beyond llama-bench it knows -npl N: N sequences of -d tokens each,
decoded side by side, as llama-batched-bench does. One run of the measured shape comes first and is not counted.
"""

import argparse
import ctypes
import json
import sys
import time

import llama_cpp as lib

KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}  # ggml's numbers, the same in every version
FLASH_OFF, FLASH_ON = 0, 1  # llama_flash_attn_type
LEVEL_ERROR = 4  # ggml_log_level
MARGIN = 8  # tokens of room that no test uses


def fail(text):
    sys.exit(f"llama_bench.py: {text}")


@lib.llama_log_callback
def log(level, text, _data):
    if level == LEVEL_ERROR:
        sys.stderr.write(text.decode(errors="replace"))


def pair(text):
    prompt, _, gen = text.partition(",")
    return int(prompt), int(gen)


def read_flags():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    p.add_argument("-m", required=True, metavar="FILE", help="GGUF file")
    p.add_argument("-p", type=int, default=512, metavar="N", help="prompt tokens; 0: no such test")
    p.add_argument("-n", type=int, default=128, metavar="N", help="generated tokens; 0: no such test")
    p.add_argument("-pg", type=pair, default=(0, 0), metavar="PP,TG", help="one test of both")
    p.add_argument("-d", type=int, default=0, metavar="N", help="tokens already in the cache, not timed")
    p.add_argument("-b", type=int, default=2048, metavar="N", help="tokens handed over at once")
    p.add_argument("-ub", type=int, default=512, metavar="N", help="tokens computed at once")
    p.add_argument("-t", type=int, default=4, metavar="N", help="threads")
    p.add_argument("-fa", type=int, default=0, choices=(0, 1), help="fused attention")
    p.add_argument("-ctk", default="f16", choices=KV_TYPES, help="type of cached keys")
    p.add_argument("-ctv", default="f16", choices=KV_TYPES, help="type of cached values")
    p.add_argument("-npl", type=int, default=1, metavar="N", help="sequences side by side")
    p.add_argument("-r", type=int, default=5, metavar="N", help="runs that are counted")
    p.add_argument("-o", default="jsonl", choices=("jsonl",), help="form of the output")
    a = p.parse_args()
    if min(a.b, a.ub, a.t, a.npl, a.r) < 1 or min(a.p, a.n, a.d, *a.pg) < 0:
        p.error("counts must not be negative; -b, -ub, -t, -npl and -r are at least 1")
    return a


def load(path):
    lib.llama_log_set(log, ctypes.c_void_p(0))
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(path.encode(), params)
    return model or fail(f"{path}: cannot be loaded")


class Test:
    """One shape: a context of its own, and a batch to fill."""

    def __init__(self, model, flags, n_prompt, n_gen):
        self.flags, self.n_prompt, self.n_gen = flags, n_prompt, n_gen
        self.rows = max(flags.b, flags.npl)
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        self.ctx = lib.llama_init_from_model(model, self.params())
        if not self.ctx:
            fail(f"no context for -fa {flags.fa} -ctk {flags.ctk} -ctv {flags.ctv} at {self.tokens()} tokens")
        self.memory = lib.llama_get_memory(self.ctx)
        self.batch = lib.llama_batch_init(self.rows, 0, 1)
        self.filled = False

    def close(self):
        lib.llama_batch_free(self.batch)
        lib.llama_free(self.ctx)

    def tokens(self):
        """Of one sequence, in steps of 256, which is what the library rounds to."""
        n = self.flags.d + self.n_prompt + self.n_gen + MARGIN
        return (n + 255) // 256 * 256

    def params(self):
        f, p = self.flags, lib.llama_context_default_params()
        p.n_ctx = self.tokens() * f.npl
        p.n_batch, p.n_ubatch, p.n_seq_max = self.rows, f.ub, f.npl
        p.n_threads = p.n_threads_batch = f.t
        p.flash_attn_type = FLASH_ON if f.fa else FLASH_OFF
        p.type_k, p.type_v = KV_TYPES[f.ctk], KV_TYPES[f.ctv]
        p.kv_unified = False
        return p

    def decode(self, rows):
        """rows: (token, position, sequence, whether its logits are wanted)."""
        b = self.batch
        for i, (token, position, sequence, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, wanted
            b.seq_id[i][0] = sequence
        b.n_tokens = len(rows)
        code = lib.llama_decode(self.ctx, b)
        if code != 0:
            fail(f"llama_decode: {code}")

    def prefill(self, begin, n):
        """n tokens from position `begin` on in each sequence, one sequence after the other, in batches as full as -b allows."""
        total, last = n * self.flags.npl, begin + n - 1
        for at in range(0, total, self.flags.b):
            places = [(begin + k % n, k // n) for k in range(at, min(at + self.flags.b, total))]
            self.decode([(i * 7919 % self.vocab, i, sequence, i == last) for i, sequence in places])
        lib.llama_synchronize(self.ctx)

    def rewind(self):
        """Back to -d tokens in each sequence; from nothing the first time, and where the library cannot cut."""
        f = self.flags
        if self.filled and all(lib.llama_memory_seq_rm(self.memory, s, f.d, -1) for s in range(f.npl)):
            return
        lib.llama_memory_clear(self.memory, False)
        self.prefill(0, f.d)
        self.filled = True

    def once(self):
        f = self.flags
        self.rewind()
        begin = time.perf_counter_ns()
        self.prefill(f.d, self.n_prompt)
        for i in range(f.d + self.n_prompt, f.d + self.n_prompt + self.n_gen):
            self.decode([(i * 31 % self.vocab, i, s, True) for s in range(f.npl)])
            lib.llama_synchronize(self.ctx)
        return time.perf_counter_ns() - begin


def describe(model, flags, test, samples):
    rates = [(test.n_prompt + test.n_gen) * flags.npl * 1e9 / ns for ns in samples]
    about = ctypes.create_string_buffer(128)
    lib.llama_model_desc(model, about, len(about))
    return {
        "build_commit": f"llama-cpp-python {lib.__version__}",
        "backends": "CPU",
        "model_filename": flags.m,
        "model_type": about.value.decode(errors="replace"),
        "model_size": lib.llama_model_size(model),
        "model_n_params": lib.llama_model_n_params(model),
        "n_batch": flags.b,
        "n_ubatch": flags.ub,
        "n_threads": flags.t,
        "type_k": flags.ctk,
        "type_v": flags.ctv,
        "flash_attn": bool(flags.fa),
        "npl": flags.npl,
        "n_prompt": test.n_prompt,
        "n_gen": test.n_gen,
        "n_depth": flags.d,
        "avg_ns": sum(samples) // len(samples),
        "avg_ts": sum(rates) / len(rates),
        "samples_ns": samples,
        "samples_ts": rates,
    }


def main():
    flags = read_flags()
    model = load(flags.m)
    for n_prompt, n_gen in ((flags.p, 0), (0, flags.n), flags.pg):
        if n_prompt + n_gen == 0:
            continue
        test = Test(model, flags, n_prompt, n_gen)
        samples = [test.once() for _ in range(flags.r + 1)][1:]
        print(json.dumps(describe(model, flags, test, samples)), flush=True)
        test.close()
    lib.llama_model_free(model)


if __name__ == "__main__":
    main()
