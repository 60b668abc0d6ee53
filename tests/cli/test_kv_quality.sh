#!/usr/bin/env bash
# What each element format of the KV cache costs the real model, as mean negative log-likelihood on the bundled text: bounds
# for each, exact equality between the stores, and the orders that must hold (a rotation mends int4, a tail mends a scale for
# a whole step). Covers Q3, Q4, K5.
set -euo pipefail
# shellcheck source=tests/cli/exact.sh
source "$(dirname "${BASH_SOURCE[0]}")/exact.sh"

find_model "$DLAB_FIXTURES/corpus_nll.json"

nll() { # SET...: mean nats a token
    local sets=()
    for s in "$@"; do sets+=(--set "$s"); done
    "$DLAB" ppl -m "$model" -c 256 --chunks 4 --set compute=f32 "${sets[@]}" -o json >"$scratch/ppl.json" 2>"$scratch/log" ||
        fail "dlab ppl ${sets[*]}: $(cat "$scratch/log")"
    json "$scratch/ppl.json" nll | grep -E '^[0-9]+\.[0-9]+$' || fail "dlab ppl ${sets[*]}: no nll in its answer"
}

base=$(nll kv.k=f32 kv.v=f32)

# within NAME LIMIT NLL: no further from f32 than LIMIT nats either way
within() {
    awk -v name="$1" -v limit="$2" -v nll="$3" -v base="$base" 'BEGIN {
        rise = nll - base; off = rise < 0 ? -rise : rise
        printf "%-44s %+.5f nats (limit %s)\n", name, rise, limit
        if (!(off <= limit)) { print name ": too far from f32" > "/dev/stderr"; exit 1 }
    }' || exit 1
}

less() { # WHAT SMALLER LARGER
    awk -v a="$2" -v b="$3" 'BEGIN { exit !(a < b) }' || fail "$1: $2 is not below $3"
}

within "f16" 0.001 "$(nll kv.k=f16 kv.v=f16)"
within "bf16" 0.003 "$(nll kv.k=bf16 kv.v=bf16)"
int8=$(nll kv.k=int8 kv.v=int8)
within "int8" 0.005 "$int8"
within "int8, paged" 0.005 "$(nll kv.k=int8 kv.v=int8 kv.store=paged)"
within "int8, keys by channel, values by block" 0.01 "$(nll kv.k=int8 kv.v=int8 kv.k_scales=channel kv.v_scales=block)"
tensor=$(nll kv.k=int8 kv.v=int8 kv.k_scales=tensor kv.v_scales=tensor)
within "int8, one scale a step" 0.02 "$tensor"
within "fp8" 0.02 "$(nll kv.k=fp8 kv.v=fp8)"
within "fp8_e5m2" 0.05 "$(nll kv.k=fp8_e5m2 kv.v=fp8_e5m2)"
int4=$(nll kv.k=int4 kv.v=int4)
within "int4" 0.12 "$int4"
rotated=$(nll kv.k=int4 kv.v=int4 kv.rotation=hadamard)
within "int4, rotated" 0.08 "$rotated"

[ "$(nll kv.k=int8 kv.v=int8 kv.store=paged kv.block_size=8)" = "$int8" ] || fail "int8 differs between stores"
less "int8: a scale a token is finer than one a step" "$int8" "$tensor"
less "int4: a rotation spreads the keys' outliers" "$rotated" "$int4"
