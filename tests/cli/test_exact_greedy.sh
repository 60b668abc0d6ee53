#!/usr/bin/env bash
# Greedy generation of the real model against the float64 oracle: five prompts, 32 steps each.
set -euo pipefail
# shellcheck source=tests/cli/exact.sh
source "$(dirname "${BASH_SOURCE[0]}")/exact.sh"

fixture="$DLAB_FIXTURES/smollm2_greedy.json"
find_model "$DLAB_FIXTURES/corpus_nll.json"

n=$(json "$fixture" "" | grep -c '^"') # its only strings are the prompts
[ "$n" = 5 ] || fail "the fixture has $n prompts, expected 5"
for ((i = 0; i < n; i++)); do
    prompt=$(json "$fixture" "$i.prompt")
    # The JSON string's quotes go, its \n becomes a line break; the marker keeps a break at the end.
    prompt=${prompt:1:-1}
    prompt=$(printf '%b.' "$prompt")
    prompt=${prompt%.}
    "$DLAB" generate -m "$model" -p "$prompt" -n 32 --greedy "${exact[@]}" -o json >"$scratch/made.json" 2>"$scratch/log" ||
        fail "prompt $i: $(cat "$scratch/log")"
    for key in prompt_ids ids; do
        json "$scratch/made.json" $key >"$scratch/got.$key"
        json "$fixture" "$i.$key" >"$scratch/want.$key"
    done
    json "$fixture" "$i.logits" | paste - - | awk '{ printf "%.7f\n", $1 - $2 }' >"$scratch/gaps"
    cmp -s "$scratch/got.prompt_ids" "$scratch/want.prompt_ids" || fail "prompt $i: its ids differ"
    same_until_close "prompt $i" "$scratch/want.ids" "$scratch/got.ids" "$scratch/gaps" 0.02
done
