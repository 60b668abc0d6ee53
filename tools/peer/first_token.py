#!/usr/bin/env python3
"""From the start of a process to its first token: dlab and llama.cpp's Python binding, in turns.

Ours is measured from outside, from before the process is made to the first byte that it prints. The peer's time begins when
its interpreter has imported the library, which favours it: Python's own start is not llama.cpp's. Both load the model from a
warm file cache, on so many cores as they have threads, compute the same prompt of 16 tokens and choose the likeliest token.
Run it with a Python that has llama-cpp-python.
"""

import argparse
import ctypes
import math
import os
import subprocess
import sys
import time

PROMPT = "The lighthouse keeper wrote in his log that the sea had been quiet since midnight."
TOKENS = 16  # of PROMPT with the model of this repository; another model's vocabulary may cut it into more or fewer


def fail(text):
    sys.exit(f"first_token.py: {text}")


def read_flags():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    p.add_argument("--dlab", default="build/release/dlab", metavar="PATH", help="our program")
    p.add_argument("--model", required=True, metavar="FILE", help="GGUF file")
    p.add_argument("--peer-model", metavar="FILE", help="GGUF file for the peer (default: ours)")
    p.add_argument("-t", type=int, default=2, metavar="N", help="threads")
    p.add_argument("-r", type=int, default=6, metavar="N", help="pairs")
    p.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


# ---- the peer's process


def run_as_peer(path, threads):
    import llama_cpp as lib  # only this process needs it

    begin = time.monotonic_ns()
    quiet = lib.llama_log_callback(lambda _level, _text, _data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        fail(f"{path}: cannot be loaded")
    context = lib.llama_context_default_params()
    context.n_ctx = 256
    context.n_threads = context.n_threads_batch = threads
    ctx = lib.llama_init_from_model(model, context)
    if not ctx:
        fail(f"{path}: no context")
    text = PROMPT.encode()
    ids = (lib.llama_token * (len(text) + 2))()  # a byte each at most, and what a model puts around them
    n = lib.llama_tokenize(lib.llama_model_get_vocab(model), text, len(text), ids, len(ids), True, True)
    if n < 1 or lib.llama_decode(ctx, lib.llama_batch_get_one(ids, n)) != 0:
        fail(f"{path}: the prompt cannot be computed")
    lib.llama_sampler_sample(lib.llama_sampler_init_greedy(), ctx, -1)
    print(time.monotonic_ns() - begin, n)


# ---- the two sides, in ns


def turn_on_its_core(cpu):
    """0 for the first CPU of a core, 1 for its second, …"""
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as f:
            ranges = [[int(n) for n in part.split("-")] for part in f.read().split(",")]
    except (OSError, ValueError):
        return 0
    return sum(n < cpu for r in ranges for n in range(r[0], r[-1] + 1))


def stay_on_cores(n):
    """This process and those it starts on n CPUs, of cores of their own first. -t alone would not do: a program may load its
    weights with more threads than it computes with."""
    allowed = sorted(os.sched_getaffinity(0), key=lambda cpu: (turn_on_its_core(cpu), cpu))
    os.sched_setaffinity(0, allowed[:n])


def ours(flags):
    command = [flags.dlab, "generate", "-m", flags.model, "-p", PROMPT, "-n", "1", "--set", f"threads={flags.t}"]
    begin = time.monotonic_ns()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        first = process.stdout.read(1)
        took = time.monotonic_ns() - begin
        process.stdout.read()
    if process.returncode != 0 or not first:
        fail(f"{flags.dlab}: exit code {process.returncode}")
    return took


def theirs(flags):
    command = [sys.executable, __file__, "--as-peer", "--model", flags.peer_model or flags.model, "-t", str(flags.t)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail(f"the peer: exit code {done.returncode}")
    took, n = done.stdout.split()
    if int(n) != TOKENS:
        print(f"first_token.py: the prompt has {n} tokens with this model, not {TOKENS}", file=sys.stderr)
    return int(took)


# ---- statistics: Student's t on the logarithms of the pairs, as in `dlab bench --peer`


def share_within(angle, df):
    """P(|T| < sqrt(df) tan(angle)), Abramowitz and Stegun 26.7.3 and 26.7.4."""
    odd = df % 2
    term = math.cos(angle) if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(2 + odd, df - 1, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total


def student_t(level, df):
    low, high = 0.0, math.pi / 2
    for _ in range(64):
        middle = (low + high) / 2
        if share_within(middle, df) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(df) * math.tan(low)


def interval(logs, level=0.95):
    n, mean = len(logs), math.fsum(logs) / len(logs)
    if n < 2 or max(logs) == min(logs):  # nothing says how far they scatter; `dlab bench --peer` has none either
        return math.exp(mean), math.nan, math.nan
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = student_t(level, n - 1) * sd / math.sqrt(n)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main():
    flags = read_flags()
    if flags.as_peer:
        run_as_peer(flags.model, flags.t)
        return
    if flags.r < 1 or flags.t < 1:
        fail("-r and -t are at least 1")
    stay_on_cores(flags.t)
    ours(flags), theirs(flags)  # the files into the cache
    logs = []
    for i in range(flags.r):
        if i % 2 == 0:
            a, b = ours(flags), theirs(flags)
        else:
            b, a = theirs(flags), ours(flags)
        logs.append(math.log(b / a))
        print(f"pair {i + 1}: ours {a / 1e6:.1f} ms, peer {b / 1e6:.1f} ms", flush=True)
    ratio, low, high = interval(logs)
    print(f"process start to first token, {TOKENS} tokens: {ratio:.3f} times faster than the peer", end=" ")
    known = f"95 % interval {low:.3f} – {high:.3f}" if math.isfinite(low) else "no interval"
    print(f"({known}, {flags.r} pairs)")


if __name__ == "__main__":
    main()
