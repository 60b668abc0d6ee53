#!/usr/bin/env bash
# The pool of the KV cache as a user meets it: sizes that are none, pools that run out, answers that must not change.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() {
    echo "test_kv_pool: $1" >&2
    exit 1
}

experiment() { # PLAN WORKLOAD: leaves it in x.yaml
    cat >x.yaml <<EOF
name: pool
model: synthetic:tiny
plan: {kv.store: paged, threads: 1, $1}
workload: {$2}
measure: {repeats: 1, warmup: 0}
report: {metrics: [preemptions]}
EOF
}

# ---- sizes that are none: one line, exit 2, nothing written, whichever command and point ----
for pool in banana 0% 101% '5.5 blocks' '0 blocks' -1 12XiB; do
    experiment "kv.pool: [auto, '$pool'], memory_limit: 1GiB" "prompt: 5, output: 5"
    for how in --dry-run -q; do
        status=0
        "$DLAB" run x.yaml "$how" -o x.h5 >out 2>err || status=$?
        [ "$status" = 2 ] || fail "kv.pool: $pool, run $how: exit $status, expected 2: $(cat out err)"
        [ "$(wc -l <err)" = 1 ] || fail "kv.pool: $pool, run $how: more than one line: $(cat err)"
        grep -q 'kv.pool' err || fail "kv.pool: $pool, run $how: the key is not named: $(cat err)"
        [ ! -e x.h5 ] || fail "kv.pool: $pool, run $how: a record was written"
    done
done

# ---- a share of a limit that is not set ----
experiment "kv.pool: 50%" "prompt: 5, output: 5"
"$DLAB" run x.yaml -q -o x.h5 --force >out 2>err || true
grep -q 'skipped: .*memory_limit' out || fail "a share of no limit: $(cat out err)"

# ---- prefixes that do not fit together: oom, with the sum, and not a failure ----
experiment "kv.block_size: 8, kv.pool: 6 blocks, batch.size: 4" "requests: 4, depth: 16, prompt: 4, output: 4"
"$DLAB" run x.yaml -q -o x.h5 --force >out 2>err || fail "a full pool is not a failure: $(cat out err)"
grep -q 'is oom: .*blocks' out || fail "a full pool: $(cat out)"

# ---- running out changes no answer ----
answers() { # PLAN: the tokens of all requests, in order
    experiment "$1, kv.k: f32, kv.v: f32, compute: f32, sample.temperature: 2" "requests: 8, prompt: 5, output: 60"
    "$DLAB" run x.yaml -q -o x.h5 --force >out 2>err || fail "$1: $(cat out err)"
    "$DLAB" export x.h5 --table tokens --format csv >tokens.csv || fail "$1: no tokens"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { print $at["request"], $at["index"], $at["token"] }' tokens.csv | sort -n -k1,1 -k2,2
}
answers "batch.size: 3" >want
[ "$(wc -l <want)" = 480 ] || fail "$(wc -l <want) tokens, expected 480"
for pool in '5 blocks' '6 blocks' '8 blocks'; do
    answers "batch.size: 3, kv.pool: $pool" >got
    cmp -s want got || fail "kv.pool: $pool gives other answers"
    awk -F '|' '/ ok / { n = $3 + 0 } END { exit !(n > 0) }' out || fail "kv.pool: $pool preempted nobody: $(cat out)"
done

# ---- more samples than the prompt has tokens ----
"$DLAB" generate -m synthetic:tiny -p Hi -n 4 --samples 5 >out 2>err || fail "samples of a short prompt: $(cat err)"
