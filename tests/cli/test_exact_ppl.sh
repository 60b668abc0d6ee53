#!/usr/bin/env bash
# Perplexity of the real model on the bundled text against the float64 oracle: f32 to 1e-5 and each token to 5e-4 on four
# chunks, int8 activations to 0.5 % on the whole text (on few chunks their rounding does not average out).
set -euo pipefail
# shellcheck source=tests/cli/exact.sh
source "$(dirname "${BASH_SOURCE[0]}")/exact.sh"

fixture="$DLAB_FIXTURES/corpus_nll.json"
find_model "$fixture"
[ "$(sha256sum <"$DLAB_SOURCE/experiments/text/corpus.txt" | cut -d' ' -f1)" = "$(json "$fixture" text_sha256 | tr -d '"')" ] ||
    fail "experiments/text/corpus.txt changed: make its figures again (tests/oracle/README.md)"

ppl() { # CONTEXT FLAG...: leaves the document in ppl.json and the tokens' values in nll.json
    local context=$1
    shift
    "$DLAB" ppl -m "$model" -c "$context" --protocol llama.cpp "$@" --save-nll "$scratch/nll.json" -o json \
        >"$scratch/ppl.json" 2>"$scratch/log" || fail "dlab ppl -c $context $*: $(cat "$scratch/log")"
    json "$scratch/ppl.json" ppl >"$scratch/got"
}

for context in 512 128; do
    ppl "$context" --chunks 4 "${exact[@]}"
    json "$fixture" "contexts.$context.ppl_second_half" >"$scratch/want"
    [ "$(json "$scratch/ppl.json" corpus_tokens)" = "$(json "$fixture" n_ids)" ] || fail "the text's token count differs"
    close_enough "f32, chunks of $context: perplexity" relative 1e-5 "$scratch/want" "$scratch/got"
    json "$scratch/nll.json" "" >"$scratch/got"
    json "$fixture" "contexts.$context.nll" >"$scratch/want"
    close_enough "f32, chunks of $context: each token" absolute 5e-4 "$scratch/want" "$scratch/got"
done

ppl 512 --set compute=int8 --set kv.k=f32 --set kv.v=f32
json "$fixture" whole_text.ppl_second_half >"$scratch/want"
close_enough "int8 activations, whole text: perplexity" relative 5e-3 "$scratch/want" "$scratch/got"
