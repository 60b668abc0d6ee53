"""Float64 forward pass of llama-architecture GGUF files, in NumPy: slow, plain, and sharing no line with decodelab.

  oracle.py nll    MODEL.gguf IDS.json [--context N] [--chunks N]   -log p of every token after the first, a list a chunk
  oracle.py greedy MODEL.gguf IDS.json [--steps N]                  the next ids, and the gap between the two best logits
  oracle.py logits MODEL.gguf IDS.json [--last N]                   the last N rows of logits

IDS.json is a list of token ids; no BOS is added. Weights are dequantized exactly as stored and nothing else is rounded.
Results go to stdout as JSON.
"""
import argparse
import json
import sys

import numpy as np

from gguf_read import read


class Model:
    def __init__(self, path):
        self.meta, self.w, self.types = read(path)
        arch = self.meta["general.architecture"]
        if arch != "llama":
            raise ValueError(f"{path}: architecture {arch}, expected llama")
        self.layers = self.meta["llama.block_count"]
        self.heads = self.meta["llama.attention.head_count"]
        self.kv_heads = self.meta.get("llama.attention.head_count_kv", self.heads)
        self.head_dim = self.w["blk.0.attn_q.weight"].shape[0] // self.heads
        self.eps = self.meta["llama.attention.layer_norm_rms_epsilon"]
        self.rope_base = self.meta.get("llama.rope.freq_base", 10000.0)
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])

    def norm(self, x, name):
        return x * (np.mean(x ** 2, axis=1, keepdims=True) + self.eps) ** -0.5 * self.w[name]

    def project(self, x, name, heads):
        """[T, width] -> [heads, T, head_dim]"""
        return (x @ self.w[name].T).reshape(len(x), heads, self.head_dim).transpose(1, 0, 2)

    def rotate(self, x):
        """GGUF's llama layout: the pair (2i, 2i+1) is a complex number, turned by position * base^(-2i / head_dim)."""
        half = self.head_dim // 2
        z = x[..., 0::2] + 1j * x[..., 1::2]
        turn = np.outer(np.arange(x.shape[1]), self.rope_base ** (-np.arange(half) / half))
        z = z * np.exp(1j * turn)
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)

    def attend(self, x, layer):
        q = self.rotate(self.project(x, f"blk.{layer}.attn_q.weight", self.heads))
        k = self.rotate(self.project(x, f"blk.{layer}.attn_k.weight", self.kv_heads))
        v = self.project(x, f"blk.{layer}.attn_v.weight", self.kv_heads)
        share = self.heads // self.kv_heads
        score = q @ np.repeat(k, share, axis=0).transpose(0, 2, 1) / self.head_dim ** 0.5
        score[:, np.triu(np.ones(score.shape[1:], dtype=bool), 1)] = -np.inf
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        mixed = (weight @ np.repeat(v, share, axis=0)).transpose(1, 0, 2).reshape(len(x), -1)
        return mixed @ self.w[f"blk.{layer}.attn_output.weight"].T

    def feed(self, x, layer):
        gate = x @ self.w[f"blk.{layer}.ffn_gate.weight"].T
        up = x @ self.w[f"blk.{layer}.ffn_up.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.w[f"blk.{layer}.ffn_down.weight"].T

    def logits(self, ids, last=None):
        """The last `last` rows (all if None) of the logits of one sequence that starts at position 0."""
        x = self.w["token_embd.weight"][np.asarray(ids)]
        for layer in range(self.layers):
            x = x + self.attend(self.norm(x, f"blk.{layer}.attn_norm.weight"), layer)
            x = x + self.feed(self.norm(x, f"blk.{layer}.ffn_norm.weight"), layer)
        return self.norm(x[-last:] if last else x, "output_norm.weight") @ self.head.T


def nll(model, ids):
    """-log p(ids[i] | ids[:i]) for i = 1 ... len-1, in nats."""
    z = model.logits(ids)[:-1]
    peak = z.max(axis=1)
    log_sum = peak + np.log(np.exp(z - peak[:, None]).sum(axis=1))
    return log_sum - z[np.arange(len(ids) - 1), ids[1:]]


def greedy(model, ids, steps):
    """-> (ids produced, top two ids of each step, their logits)"""
    ids, top, values = list(ids), [], []
    for _ in range(steps):
        z = model.logits(ids, last=1)[0]
        best = np.argsort(-z, kind="stable")[:2]
        top.append([int(i) for i in best])
        values.append([float(z[i]) for i in best])
        ids.append(top[-1][0])
    return ids[-steps:], top, values


def chunks_of(ids, context, n):
    count = len(ids) // context if n == 0 else n
    return [ids[i * context:(i + 1) * context] for i in range(count)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["nll", "greedy", "logits"])
    p.add_argument("model")
    p.add_argument("ids")
    p.add_argument("--context", type=int, default=0, help="tokens a chunk (default: the whole list)")
    p.add_argument("--chunks", type=int, default=0, help="chunks (default: all)")
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--last", type=int, default=1)
    a = p.parse_args()
    with open(a.ids, encoding="utf-8") as f:
        ids = json.load(f)
    model = Model(a.model)
    if a.what == "nll":
        out = [[round(float(v), 7) for v in nll(model, c)] for c in chunks_of(ids, a.context or len(ids), a.chunks)]
    elif a.what == "greedy":
        made, top, values = greedy(model, ids, a.steps)
        out = {"ids": made, "top2": top, "logits": values, "gaps": [v[0] - v[1] for v in values]}
    else:
        out = [[float(v) for v in row] for row in model.logits(ids, last=a.last)]
    json.dump(out, sys.stdout)
    print()


if __name__ == "__main__":
    main()
