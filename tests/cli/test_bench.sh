#!/usr/bin/env bash
# dlab bench with llama-bench's flags: which rows come, what is said about values that mean something else here, exit codes.
set -uo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL
export XDG_CACHE_HOME="$scratch/empty"
fail() {
    echo "test_bench: $1" >&2
    [ ! -s "$scratch/err" ] || cat "$scratch/err" >&2
    exit 1
}
# tests ARG...: the test column, one a line.
tests() {
    "$DLAB" bench -m synthetic:tiny -r 1 "$@" -o csv >"$scratch/out" 2>"$scratch/err" || return
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { gsub(/"/, "", $at["test"]); print $at["test"] }' "$scratch/out"
}
is() {
    [ "$2" = "$3" ] || fail "$1: \"$2\", expected \"$3\""
}

is "lists" "$(tests -p 8,16 -n 2 | tr '\n' ';')" "pp8;pp16;tg2;"
is "repeated flags" "$(tests -p 8 -p 16 -n 0 | tr '\n' ';')" "pp8;pp16;"
is "ranges" "$(tests -p 4-16*2 -n 1-3 | tr '\n' ';')" "pp4;pp8;pp16;tg1;tg2;tg3;"
is "steps" "$(tests -p 0 -n 2-8+3 | tr '\n' ';')" "tg2;tg5;tg8;"
is "both in one" "$(tests -p 0 -n 0 -pg 8,2 -pg 4,1 | tr '\n' ';')" "pp8+tg2;pp4+tg1;"
is "depths" "$(tests -p 4 -n 2 -d 0,16 | tr '\n' ';')" "pp4;tg2;pp4 @ d16;tg2 @ d16;"
is "sequences" "$(tests -p 4 -n 0 -npl 1,3 | tr '\n' ';')" "pp4;pp4 npl3;"
is "settings multiply" "$(tests -p 4 -n 0 -t 1,2 -fa 0,1 -ctk f16,f32 -ub 2,4 | wc -l)" 16
is "long names" "$(tests --n-prompt 4 --n-gen 2 --threads 1 --flash-attn 1 --cache-type-k f32 --batch-size 64 --ubatch-size 32 --repetitions 2 --no-warmup --progress --delay 0 | tr '\n' ';')" "pp4;tg2;"

is "every format of the cache" "$(tests -p 4 -n 2 -ctk f32,f16,bf16,int8,fp8,fp8_e5m2,int4 -ctv int8 | wc -l)" 14

# what became of a value is said
tests -p 4 -n 0 -fa 0 -b 64 -ub 32 >/dev/null || fail "-fa -b -ub"
for said in "-fa 0 is attention.kernel=unfused" "-b 64 is batch.token_budget=64" "-ub 32 is batch.chunk=32"; do
    grep -q -- "$said" "$scratch/err" || fail "\"$said\" is not said"
done
tests -p 4 -n 0 >/dev/null
[ ! -s "$scratch/err" ] || fail "something is said where nothing was asked"

# the effective configuration is in the rows
"$DLAB" bench -m synthetic:tiny -p 4 -n 0 -r 2 -t 1 -ctk f32 -fa 0 -o jsonl >"$scratch/row" 2>/dev/null || fail "jsonl"
for field in '"n_threads":1' '"type_k":"f32"' '"type_v":"f16"' '"flash_attn":0' '"status":"ok"' '"n_prompt":4' '"n_gen":0'; do
    grep -qF "$field" "$scratch/row" || fail "the row lacks $field: $(cat "$scratch/row")"
done
grep -qE '"samples_ns":\[[0-9.]+,[0-9.]+\]' "$scratch/row" || fail "no raw samples"
"$DLAB" bench -m synthetic:tiny -p 4 -n 0 -r 1 -ctk f32 >"$scratch/out" 2>/dev/null || fail "md"
for column in model size params backend threads type_k test "t/s" "ttft ms" "tpot ms" "peak memory"; do
    head -1 "$scratch/out" | grep -q "| *$column *|" || fail "the table lacks the column $column"
done
head -1 "$scratch/out" | grep -q type_v && fail "a column for a setting that was not chosen"
"$DLAB" bench -m synthetic:tiny -p 4 -n 2 -r 1 -o json -oe csv >"$scratch/out" 2>"$scratch/err" || fail "-oe"
is "-oe prints the rows on standard error, too" "$(grep -c synthetic:tiny "$scratch/err")" 2
"$DLAB" bench -m synthetic:tiny -p 4 -n 2 -r 1 -o sql >"$scratch/out" 2>"$scratch/err" || fail "sql"
is "sql: one table" "$(grep -c '^CREATE TABLE' "$scratch/out")" 1
is "sql: a row a test" "$(grep -c '^INSERT INTO' "$scratch/out")" 2
if command -v sqlite3 >/dev/null; then
    is "sqlite3 reads it" "$(sqlite3 :memory: ".read $scratch/out" "SELECT count(*) FROM dlab_bench WHERE avg_ts > 0")" 2
fi

# a cell that cannot be measured is a row, the sweep goes on
code=0
"$DLAB" bench -m synthetic:tiny -p 4,100000 -n 2 -r 1 -o csv >"$scratch/out" 2>"$scratch/err" || code=$?
is "a skipped row leaves the exit code" "$code" 0
is "rows after a skipped one" "$(wc -l <"$scratch/out")" 4
grep -q '"skipped"' "$scratch/out" || fail "no row is skipped"
"$DLAB" bench -m synthetic:tiny -p 4,100000 -n 2 -r 1 --strict >/dev/null 2>&1
is "--strict" $? 1
"$DLAB" bench -m synthetic:tiny -p 4 -n 0 -r 1 --set memory_limit=1KiB -o csv 2>/dev/null | grep -q '"oom"' || fail "no row is oom"

# refused PATTERN ARG...: exit 2, one line, nothing printed
refused() {
    local pattern=$1 code=0
    shift
    "$DLAB" bench "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
    is "$*: exit code" "$code" 2
    [ ! -s "$scratch/out" ] || fail "$*: something was printed"
    is "$*: lines on standard error" "$(wc -l <"$scratch/err")" 1
    grep -q -- "$pattern" "$scratch/err" || fail "$*: does not match \"$pattern\""
}
refused "-ctk: q8_0 is not a format here (.*no zero point.*); the nearest is -ctk int8 (all: .*int8" -m synthetic:tiny -ctk q8_0
refused "-ctv: q4_1 is not a format here (.*); the nearest is -ctv int4" -m synthetic:tiny -ctv f16,q4_1
refused "-ctv: \"q9\" is not a cache type" -m synthetic:tiny -ctv f16,q9
refused "unknown flag -ctq; did you mean -ctk" -ctq f16
refused "-fa: \"2\" is not known" -m synthetic:tiny -fa 2
refused "-p: \"5x\" is not a list" -m synthetic:tiny -p 5x
refused "never ends" -m synthetic:tiny -p 1-8+0
refused "-pg: \"512\" is not two numbers" -m synthetic:tiny -pg 512
refused "nothing to measure" -m synthetic:tiny -p 0 -n 0
refused "-r: 0 is out of range" -m synthetic:tiny -r 0
refused "-o: \"xml\"" -m synthetic:tiny -o xml
refused "no-such.gguf" -m synthetic:tiny -m no-such.gguf
"$DLAB" bench --overhead | grep -qE '^null target: [0-9.]+ ns' || fail "--overhead"
echo "bench answers as llama-bench does"
