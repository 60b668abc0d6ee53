#!/usr/bin/env bash
# tools/peer/*.py, where there is a Python with llama.cpp's binding: `make bench-peer` makes one, or DLAB_PEER_PYTHON names it.
set -uo pipefail

python=${DLAB_PEER_PYTHON:-$DLAB_SOURCE/build/peer/venv/bin/python}
if ! "$python" -c 'import llama_cpp' 2>/dev/null; then
    echo "skipped: no Python with llama-cpp-python; \`make bench-peer QUICK=1\` makes one"
    exit 77
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/dlab peer XXXXXX")
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL
model=$DLAB_FIXTURES/tiny-q4_1.gguf
fail() {
    echo "FAIL: $*" >&2
    [ ! -s "$scratch/err" ] || cat "$scratch/err" >&2
    exit 1
}
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$python" "$DLAB_SOURCE/tools/peer/llama_bench.py" >"$scratch/peer"
chmod +x "$scratch/peer"

# tests of one call, as llama-bench has them: -p, -n, -pg
"$scratch/peer" -m "$model" -p 8 -n 2 -pg 4,2 -d 16 -t 1 -r 2 -o jsonl >"$scratch/out" 2>"$scratch/err" || fail "llama_bench.py"
got=$(sed -E 's/.*"n_prompt": ([0-9]+), "n_gen": ([0-9]+), "n_depth": ([0-9]+).*"samples_ns": \[[0-9]+, [0-9]+\].*/\1 \2 \3/' "$scratch/out" | tr '\n' ';')
[ "$got" = "8 0 16;0 2 16;4 2 16;" ] || fail "tests: $got"
grep -q '"build_commit": "llama-cpp-python [0-9]' "$scratch/out" || fail "it does not say who it is"

# several prompts share batches: 24 tokens of 3 sequences in batches of 5, after 4 each
"$scratch/peer" -m "$model" -p 8 -n 0 -d 4 -npl 3 -b 5 -t 1 -r 1 >"$scratch/out" 2>"$scratch/err" || fail "-npl 3 -b 5"
grep -q '"npl": 3, "n_prompt": 8, "n_gen": 0, "n_depth": 4,' "$scratch/out" || fail "-npl 3 -b 5: $(cat "$scratch/out")"
"$python" - "$DLAB_SOURCE/tools/peer" <<'PY' >"$scratch/out" 2>"$scratch/err" || fail "what a batch holds"
import sys

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import llama_bench

seen = []
test = llama_bench.Test.__new__(llama_bench.Test)
test.flags = type("flags", (), {"npl": 3, "b": 5})
test.vocab, test.ctx, test.decode = 1000, None, seen.append
llama_bench.lib.llama_synchronize = lambda _ctx: None
test.prefill(4, 8)
assert [len(rows) for rows in seen] == [5, 5, 5, 5, 4], "batches are full"
rows = [row for batch in seen for row in batch]
assert [(row[1], row[2]) for row in rows] == [(i, s) for s in range(3) for i in range(4, 12)]
assert [row[1:3] for row in rows if row[3]] == [(11, 0), (11, 1), (11, 2)], "logits of the last of each alone"

import first_token

assert all(end != end for end in first_token.interval([0.1] * 3)[1:]), "pairs that agree have no interval (NaN)"
ratio, low, high = first_token.interval([0.1, 0.3])
assert low < ratio < high
PY

# every combination that dlab asks for is answered as asked: dlab checks it
"$DLAB" bench -m "$model" -p 8 -n 2 -pg 4,2 -d 0,8 -npl 1,3 -ctk f16,bf16 -t 1 -r 2 --peer-fa 1 \
    --peer "llama-python=$scratch/peer" -o csv >"$scratch/out" 2>"$scratch/err" || fail "dlab bench: exit $?"
rows=$(grep -c '"llama-cpp-python [0-9.]*, CPU".*"ok"' "$scratch/out")
[ "$rows" = 24 ] || fail "$rows of 24 rows have the peer's part"

# what llama.cpp refuses is a reason
"$DLAB" bench -m "$model" -p 0 -n 2 -ctv int8 -t 1 -r 1 --peer-fa 0 --peer "llama-python=$scratch/peer" -o csv >"$scratch/out" 2>"$scratch/err"
[ $? = 1 ] || fail "a quantized V cache without fused attention: exit code"
grep -q 'no context for -fa 0 -ctk f16 -ctv q8_0' "$scratch/out" || fail "its reason: $(cat "$scratch/out")"
"$scratch/peer" -m "$scratch/no.gguf" -p 1 -n 0 >"$scratch/out" 2>"$scratch/err" && fail "a model that is not there"
grep -q 'no.gguf: cannot be loaded' "$scratch/err" || fail "what it says of a model that is not there"

"$python" "$DLAB_SOURCE/tools/peer/first_token.py" --dlab "$DLAB" --model "$model" -t 1 -r 2 >"$scratch/out" 2>"$scratch/err" || fail "first_token.py"
grep -qE '^pair 2: ours [0-9.]+ ms, peer [0-9.]+ ms$' "$scratch/out" || fail "first_token.py: $(cat "$scratch/out")"
grep -qE 'to first token, .*: [0-9.]+ times faster .*95 % interval [0-9.]+ – [0-9.]+, 2 pairs' "$scratch/out" || fail "first_token.py: $(cat "$scratch/out")"
echo "llama.cpp's binding answers as llama-bench does"
