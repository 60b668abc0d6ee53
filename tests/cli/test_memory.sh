#!/usr/bin/env bash
# dlab memory: K4's numbers, a model's own shape, what the multi-head formula would overstate, bad shapes.
set -uo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL
export XDG_CACHE_HOME="$scratch/empty"
fail() {
    echo "test_memory: $1" >&2
    exit 1
}
# bytes DTYPE ARG...: the bytes column of the CSV.
bytes() {
    local dtype=$1
    shift
    "$DLAB" memory "$@" -o csv | awk -F, -v dtype="$dtype" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $1 == dtype { print $at["bytes"] }'
}
is() {
    [ "$2" = "$3" ] || fail "$1: \"$2\", expected \"$3\""
}

is "Qwen2.5-7B's shape at 4096 (0.235 GB)" "$(bytes f16 --layers 28 --kv-heads 4 --head-dim 128 --tokens 4096)" 234881024
is "a 7B with 32 KV heads at 4096 (2.147 GB)" "$(bytes f16 --layers 32 --kv-heads 32 --head-dim 128 --tokens 4096)" 2147483648
is "f32 is twice f16" "$(bytes f32 --layers 32 --kv-heads 32 --head-dim 128 --tokens 4096)" 4294967296
is "ranges and batches" "$(bytes f16 --layers 1 --kv-heads 1 --head-dim 1 --tokens 1-4*2 --batch 1,10 | tr '\n' ' ')" "4 8 16 40 80 160 "
is "a model's own shape" "$(bytes f16 -m synthetic:smollm2-135m --tokens 2048)" $((2 * 30 * 3 * 64 * 2048 * 2))
is "a flag over the model's shape" "$(bytes f16 -m synthetic:smollm2-135m --tokens 2048 --kv-heads 9)" $((2 * 30 * 9 * 64 * 2048 * 2))

# the narrow formats: elements and their scales (4 bytes a head's vector; int4: for each 32 elements, padded to whole ones)
vectors=$((2 * 28 * 4 * 4096))
shape=(--layers 28 --kv-heads 4 --head-dim 128 --tokens 4096)
is "bf16" "$(bytes bf16 "${shape[@]}")" $((vectors * 256))
is "int8" "$(bytes int8 "${shape[@]}")" $((vectors * 132))
is "fp8" "$(bytes fp8 "${shape[@]}")" $((vectors * 132))
is "fp8_e5m2" "$(bytes fp8_e5m2 "${shape[@]}")" $((vectors * 132))
is "int4" "$(bytes int4 "${shape[@]}")" $((vectors * (64 + 16)))
is "int4, a head that is no multiple of 32" "$(bytes int4 --layers 1 --kv-heads 1 --head-dim 40 --tokens 1)" $((2 * (32 + 8)))

# waste ARG...: the bytes that f16 wastes in the paged store, one a line
waste() {
    "$DLAB" memory -o csv "$@" | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $1 == "f16" { print $at["waste_bytes"] }'
}
token=$((2 * 30 * 3 * 64 * 2))
is "waste in last blocks" "$(waste -m synthetic:smollm2-135m --tokens 1000 --batch 3 --block 8,16,256 | tr '\n' ' ')" \
    "0 $((3 * 8 * token)) $((3 * 24 * token)) "
is "whole blocks waste nothing" "$(waste -m synthetic:smollm2-135m --tokens 1024 --block 8-256*2 | sort -u)" 0
"$DLAB" memory -m synthetic:smollm2-135m --tokens 1000 --block 16 >"$scratch/out" || fail "md with blocks: exit $?"
grep -q "0.79" "$scratch/out" || fail "md lacks the share that is wasted" # 8 of 1008
grep -q "waste" "$scratch/out" || fail "md does not name the waste"
"$DLAB" memory -m synthetic:smollm2-135m | grep -qi "waste" && fail "md speaks of waste where no block is asked"

"$DLAB" memory --layers 28 --heads 28 --kv-heads 4 --head-dim 128 --tokens 4096 >"$scratch/out" || fail "md: exit $?"
grep -q "0.2349" "$scratch/out" || fail "md lacks the gigabytes"
grep -q "1.644" "$scratch/out" || fail "md lacks what the multi-head formula gives"
grep -q "7 times" "$scratch/out" || fail "md lacks by how much it overstates"
"$DLAB" memory --layers 28 --kv-heads 4 --head-dim 128 | grep -q "multi-head" && fail "md overstates nothing where heads are not told"

# refused PATTERN ARG...
refused() {
    local pattern=$1 code=0
    shift
    "$DLAB" memory "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
    [ "$code" = 2 ] || fail "$*: exit $code, expected 2"
    [ "$(wc -l <"$scratch/err")" = 1 ] || fail "$*: not one line"
    grep -q -- "$pattern" "$scratch/err" || fail "$*: \"$(cat "$scratch/err")\" does not match \"$pattern\""
}
refused "missing: --kv-heads --head-dim" --layers 3
refused "no model"
refused "--layers: 0 is out of range" --layers 0
refused "--heads: 9 is no multiple of 4" --layers 1 --kv-heads 4 --heads 9 --head-dim 1
refused "not a list of numbers" --layers 1 --kv-heads 1 --head-dim 1 --tokens 4k
refused "--block: \"0\" is out of range" --layers 1 --kv-heads 1 --head-dim 1 --block 0
refused "overflow\|too large\|2⁶³" --layers 1000000000 --kv-heads 1000000000 --head-dim 1000000000 --tokens 1
echo "K4 holds"
