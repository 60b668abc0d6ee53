#!/usr/bin/env bash
# Every command as a stranger meets it: help with examples, errors in one line with exit code 2, pipes that close, full disks.
set -uo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL
export XDG_CACHE_HOME="$scratch/empty"
commands="bench calibrate env export generate list load memory plot ppl run serve show tokenize"

fail() {
    echo "test_commands: $1" >&2
    exit 1
}

# ok ARG...: exit 0; what it printed is in $scratch/out.
ok() {
    "$DLAB" "$@" >"$scratch/out" 2>"$scratch/err" || fail "dlab $*: exit $?: $(cat "$scratch/err")"
}

# refused PATTERN ARG...: exit 2, nothing on standard output, one line on standard error that begins with the command and
# matches the pattern.
refused() {
    local pattern=$1 code=0
    shift
    "$DLAB" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    [ "$code" = 2 ] || fail "dlab $*: exit $code, expected 2: $(cat "$scratch/err")"
    [ ! -s "$scratch/out" ] || fail "dlab $*: printed on standard output: $(cat "$scratch/out")"
    [ "$(wc -l <"$scratch/err")" = 1 ] || fail "dlab $*: not one line: $(cat "$scratch/err")"
    grep -qE "^dlab( [a-z]+)?: .*$pattern" "$scratch/err" || fail "dlab $*: \"$(cat "$scratch/err")\" does not match /$pattern/"
}

# ---- the program
ok --help
for c in $commands; do
    grep -qE "^  $c +[^ ]" "$scratch/out" || fail "--help does not tell of $c"
done
grep -q worker "$scratch/out" && fail "--help shows an internal command"
ok --version
for word in revision compiler hdf5 gnuplot; do grep -q "^$word: ." "$scratch/out" || fail "--version does not tell $word"; done
for c in $commands; do
    ok "$c" --help
    grep -q "^Usage: dlab $c" "$scratch/out" || fail "$c --help has no usage"
    grep -q "^Example:" "$scratch/out" || fail "$c --help has no example"
    ok help "$c"
    refused "unknown flag --no-such-flag" "$c" --no-such-flag
done
refused "a command is expected"
refused 'unknown command "bnech"; did you mean bench\?' bnech
refused 'unknown command "help-me-now"' help-me-now
refused 'unknown command "generat"; did you mean generate' help generat
refused 'unknown flag "--verison"' --verison

# ---- no model, a bad model
refused "no model.*make demo.*synthetic:smollm2-135m" bench
refused "no model" ppl
refused "no model" generate -p x
for c in "generate -p x" "tokenize -p x" ppl bench memory; do
    # shellcheck disable=SC2086 # words
    refused "no such|No such" $c -m "$scratch/no such file.gguf"
    # shellcheck disable=SC2086
    refused "synthetic.*did you mean|synthetic" $c -m synthetic:tyni
done
head -c 100 "$DLAB_FIXTURES/tiny-f32.gguf" >"$scratch/cut short.gguf"
printf 'this is no model' >"$scratch/text.gguf"
refused "cut short.gguf" generate -p x -m "$scratch/cut short.gguf"
refused "text.gguf" memory -m "$scratch/text.gguf"
refused "$scratch" bench -m "$scratch"

# ---- values
refused "KEY=VALUE" generate -m synthetic:tiny -p x --set kv.k
refused "kv.stor.*kv.store" generate -m synthetic:tiny -p x --set kv.stor=none
refused "kv.store.*contiguous" ppl -m synthetic:tiny --set kv.store=contigous
refused "batch.size" bench -m synthetic:tiny --set batch.size=0
refused "-n: 0 is out of range" generate -m synthetic:tiny -p x -n 0
refused "--samples: 0 is out of range" generate -m synthetic:tiny -p x --samples 0
refused "-n: needs a value" generate -m synthetic:tiny -p x -n
refused "-o: \"xml\"" generate -m synthetic:tiny -p x -o xml
refused "one of -p TEXT and -f FILE" generate -m synthetic:tiny
refused "one of -p TEXT and -f FILE" tokenize -m synthetic:tiny -p x -f /dev/null
refused "prompt is empty" generate -m synthetic:tiny -p ""
refused "no-such-file" tokenize -m synthetic:tiny -f no-such-file
refused "directory" tokenize -m synthetic:tiny -f "$scratch"
refused "did you mean llama.cpp" ppl -m synthetic:tiny --protocol lama.cpp
refused "-c: 1 is out of range" ppl -m synthetic:tiny -c 1
printf 'too short' >"$scratch/short.txt"
refused "short.txt has 9 tokens, a chunk needs 64" ppl -m synthetic:tiny -c 64 -f "$scratch/short.txt"
refused "metric" list metrix

# ---- records
refused "a record is expected" show
refused "a record is expected" export
refused "a record is expected" plot
printf 'this is no record' >"$scratch/text.h5"
for c in show export plot; do
    refused "nothing.h5" "$c" "$scratch/nothing.h5"
    refused "text.h5" "$c" "$scratch/text.h5"
done

# ---- text in and out
[ "$(printf 'Hi' | "$DLAB" tokenize -m synthetic:tiny -f - -o json)" = "[72, 105]" ] || fail "tokenize does not read standard input"
[ "$("$DLAB" tokenize -m synthetic:tiny -p Hi -o json)" = "[72, 105]" ] || fail "tokenize -p"
"$DLAB" tokenize -m synthetic:tiny -p Hi | head -1 | grep -q '^72' || fail "tokenize as text"
ok generate -m synthetic:tiny -p Hi -n 4
ok generate -m synthetic:tiny -f "$scratch/short.txt" -n 4 --set kv.store=none
# several answers from one prompt: all the same at temperature 0, different above, each as a run of its own would give it
for store in contiguous paged; do
    ok generate -m synthetic:tiny -p Hello -n 6 --samples 3 --set kv.store=$store -o json
    tr -d ' \n' <"$scratch/out" | grep -o '"ids":\[[^]]*\]' >"$scratch/ids"
    [ "$(wc -l <"$scratch/ids")" = 3 ] || fail "--samples 3 gives not three answers: $(cat "$scratch/ids")"
    [ "$(sort -u "$scratch/ids" | wc -l)" = 1 ] || fail "greedy samples differ: $(cat "$scratch/ids")"
    ok generate -m synthetic:tiny -p Hello -n 6 --samples 3 --set kv.store=$store --set sample.temperature=1 -o json
    tr -d ' \n' <"$scratch/out" | grep -o '"ids":\[[^]]*\]' >"$scratch/ids"
    [ "$(sort -u "$scratch/ids" | wc -l)" = 3 ] || fail "samples at temperature 1 are the same: $(cat "$scratch/ids")"
    ok generate -m synthetic:tiny -p Hello -n 6 --set kv.store=$store --set sample.temperature=1 -o json
    [ "$(tr -d ' \n' <"$scratch/out" | grep -o '"ids":\[[^]]*\]')" = "$(head -1 "$scratch/ids")" ] ||
        fail "the first of three samples is not the one that is given alone"
done
ok generate -m synthetic:tiny -p Hello -n 6 --samples 2
[ "$(grep -c '^--- [12] of 2$' "$scratch/out")" = 2 ] || fail "two answers as text: $(cat "$scratch/out")"
ok ppl -m synthetic:tiny -c 32 --chunks 2 --save-nll "$scratch/a file.json"
grep -q "random" "$scratch/out" || fail "ppl does not say that a synthetic model's figures mean nothing"
[ "$(tr ',' '\n' <"$scratch/a file.json" | grep -cE '[0-9]\.[0-9]{7,}')" = 62 ] || fail "--save-nll has not 2 × 31 values"
"$DLAB" ppl -m synthetic:tiny -c 32 --chunks 1 --save-nll "$scratch/no/folder.json" >/dev/null 2>"$scratch/err"
[ $? = 2 ] || fail "--save-nll into a folder that is not there passed"
grep -q "no/folder.json" "$scratch/err" || fail "--save-nll does not name its path"
ok list --docs
grep -q "kv.store" "$scratch/out" || fail "list --docs lacks kv.store"
ok list axes
for word in contiguous paged int8 fp8_e5m2 int4 local_strided attention.pattern; do
    grep -q "$word" "$scratch/out" || fail "list axes lacks $word"
done
ok env
grep -q "^cpu_model" "$scratch/out" || fail "env lacks cpu_model"

# ---- standard output that goes away, or is full
"$DLAB" list --docs 2>"$scratch/err" | head -1 >/dev/null
[ "${PIPESTATUS[0]}" -le 1 ] || fail "a closed pipe is an error"
[ ! -s "$scratch/err" ] || fail "a closed pipe is not quiet: $(cat "$scratch/err")"
"$DLAB" generate -m synthetic:tiny -p x -n 400 2>"$scratch/err" | head -c 1 >/dev/null
[ ! -s "$scratch/err" ] || fail "generate into a closed pipe is not quiet: $(cat "$scratch/err")"
if [ -e /dev/full ]; then
    for c in "list" "env -o json" "memory -m synthetic:tiny" "tokenize -m synthetic:tiny -p x" \
        "generate -m synthetic:tiny -p x -n 2" "bench -m synthetic:tiny -p 4 -n 0 -r 1"; do
        # shellcheck disable=SC2086
        "$DLAB" $c >/dev/full 2>"$scratch/err"
        [ $? = 2 ] || fail "dlab $c: a full disk passed"
        grep -q "standard output" "$scratch/err" || fail "dlab $c: a full disk is not named: $(cat "$scratch/err")"
    done
fi

# ---- Ctrl-C; a shell without job control has its background jobs ignore SIGINT, which dlab respects
begun() { # waits for the first chunk
    local i
    for ((i = 0; i < 500; i++)); do
        grep -q "chunk 1 " "$scratch/err" && return
        sleep 0.02
    done
}
"$DLAB" ppl -m synthetic:tiny -c 40 --set threads=1 --set isa=plain >"$scratch/out" 2>"$scratch/err" &
pid=$!
begun
kill -INT $pid || fail "ppl was over before its SIGINT could be ignored"
wait $pid || fail "a SIGINT that the parent ignores ended ppl: $(cat "$scratch/err")"
: >"$scratch/err"
env --default-signal=INT "$DLAB" ppl -m synthetic:tiny -c 500 --set threads=1 --set isa=plain >"$scratch/out" 2>"$scratch/err" &
pid=$!
begun
if kill -INT $pid 2>/dev/null; then
    code=0
    wait $pid || code=$?
    [ "$code" = 130 ] || fail "an interrupted ppl exits $code, expected 130"
    [ ! -s "$scratch/out" ] || fail "an interrupted ppl prints figures"
    grep -q "interrupted after" "$scratch/err" || fail "an interrupted ppl does not say so"
else
    fail "ppl was over before it could be interrupted"
fi
echo "every command answers"
