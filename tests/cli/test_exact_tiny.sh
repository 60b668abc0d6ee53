#!/usr/bin/env bash
# The tiny models (every element type, tied and own head, their own eps and RoPE base) against the float64 oracle.
set -euo pipefail
# shellcheck source=tests/cli/exact.sh
source "$(dirname "${BASH_SOURCE[0]}")/exact.sh"

check() { # MODEL FLAG...
    local name=$1 want="$DLAB_FIXTURES/$1.json" label="$*" protocol
    local gguf="$DLAB_FIXTURES/$name.gguf" context
    shift
    context=$(json "$want" context)
    for protocol in full llama.cpp; do
        "$DLAB" ppl -m "$gguf" -f "$DLAB_FIXTURES/tiny.txt" -c "$context" --protocol "$protocol" "${exact[@]}" "$@" \
            --save-nll "$scratch/nll.json" -o json >"$scratch/ppl.json" 2>"$scratch/log" || fail "$label: $(cat "$scratch/log")"
        json "$scratch/ppl.json" ppl >"$scratch/got"
        if [ "$protocol" = full ]; then json "$want" ppl_full; else json "$want" ppl_second_half; fi >"$scratch/want"
        close_enough "$label: perplexity, $protocol" relative 1e-5 "$scratch/want" "$scratch/got"
    done
    json "$scratch/nll.json" "" >"$scratch/got"
    json "$want" nll >"$scratch/want"
    close_enough "$label: each token" absolute 1e-4 "$scratch/want" "$scratch/got"

    "$DLAB" generate -m "$gguf" -p "$(json "$want" greedy.prompt | tr -d '"')" -n 24 --greedy "${exact[@]}" "$@" -o json \
        >"$scratch/made.json" 2>"$scratch/log" || fail "$label: $(cat "$scratch/log")"
    for key in prompt_ids ids; do
        json "$scratch/made.json" $key >"$scratch/got.$key"
        json "$want" greedy.$key >"$scratch/want.$key"
    done
    json "$want" greedy.gaps >"$scratch/gaps"
    cmp -s "$scratch/got.prompt_ids" "$scratch/want.prompt_ids" || fail "$label: the prompt's ids differ"
    same_until_close "$label: greedy" "$scratch/want.ids" "$scratch/got.ids" "$scratch/gaps" 0.001
}

for model in tiny-f32 tiny-q4_1 tiny-mixed; do
    check "$model"
    check "$model" --set kv.store=none --set attention.kernel=unfused --set threads=1
done
