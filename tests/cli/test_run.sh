#!/usr/bin/env bash
# dlab run from the outside: names, flags, output streams, exit codes, resuming.
set -uo pipefail

scratch=$(mktemp -d "${TMPDIR:-/tmp}/dlab run XXXXXX")
trap 'rm -rf "$scratch" "$scratch.before"' EXIT
cd "$scratch" || exit 1
unset DLAB_MODEL

fail() {
    echo "FAIL: $*" >&2
    echo "--- stdout" >&2
    cat out >&2
    echo "--- stderr" >&2
    cat log >&2
    exit 1
}
# expect CODE ARGUMENT...: runs dlab, keeps what it says in out and log
expect() {
    local want=$1 code=0
    shift
    "$DLAB" "$@" >out 2>log || code=$?
    [ "$code" -eq "$want" ] || fail "dlab $*: exit $code, expected $want"
}
one_line() { [ "$(wc -l <log)" -eq 1 ] || fail "expected one line of error: $*"; }
says() { grep -qF -- "$1" "$2" || fail "\"$1\" is not in $2"; }
says_not() { ! grep -qF -- "$1" "$2" || fail "\"$1\" is in $2"; }

cat >'an experiment.yaml' <<'YAML'
name: small
model: synthetic:tiny
plan:
  kv.store: [none, contiguous]
  batch.size: [1, 2]
workload: {prompt: 8, output: 4}
measure: {repeats: 2, warmup: 1}
YAML

# ---- a whole run, with spaces in every name
expect 0 run 'an experiment.yaml' -o 'my record.h5'
says 'record: my record.h5' out
says 'kv.store' out
says '[8/8]' log
says_not "$(printf '\033')" log
says_not "$(printf '\r')" log
[ -f 'my record.h5' ] || fail 'no record'
[ ! -e 'my record.h5.parts' ] || fail 'the parts are still there'
expect 0 show 'my record.h5' --format json
says '"contiguous"' out

# ---- an existing record is not touched unasked
sum=$(sha256sum <'my record.h5')
expect 2 run 'an experiment.yaml' -o 'my record.h5'
one_line 'an existing record'
says '--resume' log
says '--force' log
[ "$(sha256sum <'my record.h5')" = "$sum" ] || fail 'the record was touched'
expect 0 run 'an experiment.yaml' -o 'my record.h5' --resume
says '8 of 8 runs kept' log
expect 0 run 'an experiment.yaml' -o 'my record.h5' --force --quiet --set measure.repeats=1
[ ! -s log ] || fail '--quiet is not quiet'

# ---- without -o a new name each time
expect 0 run 'an experiment.yaml' --set measure.repeats=1
expect 0 run 'an experiment.yaml' --set measure.repeats=1
[ "$(find . -name 'small-*.h5' | wc -l)" -eq 2 ] || fail 'expected two records of names of their own'

# ---- standard output is one document
expect 0 run 'an experiment.yaml' -o j.h5 --format json --set batch.size=1
says 'record: j.h5' log
says_not 'record:' out
python=$(command -v python3 || true)
[ -z "$python" ] || "$python" -c 'import json, sys; json.load(sys.stdin)' <out || fail 'not strict JSON'

# ---- names that are no UTF-8 are said, not fatal
strange=$(printf 'caf\351.gguf')
expect 2 run 'an experiment.yaml' -o x.h5 -m "$strange"
one_line 'a name that is no UTF-8'

# ---- a run on other CPUs is another run
if [ "$(nproc)" -ge 2 ] && command -v taskset >/dev/null; then
    cpu=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
    expect 0 run 'an experiment.yaml' -o c.h5
    code=0
    taskset -c "$cpu" "$DLAB" run 'an experiment.yaml' -o c.h5 --resume >out 2>log || code=$?
    [ "$code" -eq 0 ] || fail "taskset: exit $code"
    says '0 of 8 runs kept' log
fi

# ---- a dry run leaves nothing
find . -type f | sort >"$scratch.before"
expect 0 run 'an experiment.yaml' --dry-run
says '8 runs of 4 points' out
find . -type f | sort | cmp -s "$scratch.before" - || fail 'a dry run left files'

# ---- what cannot work is said before anything runs, with the arithmetic
cat >refused.yaml <<'YAML'
model: synthetic:tiny
plan: {kv.store: [contiguous, paged], kv.pool: 4KiB}
workload: {prompt: 100, output: 4}
measure: {repeats: 1, warmup: 0}
YAML
expect 0 run refused.yaml --dry-run
[ "$(grep -c 'not run: the longest sequence has 103 tokens and takes [0-9]* bytes of cache.*(kv.pool) has 4096' out)" = 2 ] ||
    fail 'a sequence that is longer than the pool is not refused'
says '2 not run' out
expect 0 run refused.yaml --dry-run --set kv.pool=64KiB
says '0 not run' out
expect 0 run refused.yaml --set kv.pool=64KiB -o pool.h5
expect 0 run refused.yaml -o refused.h5
says 'skipped' out
expect 0 run 'an experiment.yaml' --dry-run --set workload.shared_prefix=8
says 'not run: workload.shared_prefix: prompts begin with the same 8 tokens' out
expect 0 run 'an experiment.yaml' --dry-run --set workload.samples=2
says 'not run: workload.samples: 2 answers to a prompt run at once; batch.size has 1 places' out
says '2 not run' out

# ---- lengths, prefixes and samples reach the engine
expect 0 run 'an experiment.yaml' -o w.h5 --set kv.store=paged --set kv.prefix_cache=on --set batch.size=4 \
    --set workload.requests=6 --set workload.lengths=lognormal --set workload.prompt=60 --set workload.prompt_sd=20 \
    --set workload.shared_prefix=16 --set workload.samples=2 --format json
says '"ok"' out

# ---- a failed point is a row and exit 1; oom and skipped only with --strict
expect 1 run 'an experiment.yaml' --fault crash@1,fail@2 -o f.h5
says 'crashed' log
says '[8/8]' log
expect 0 run 'an experiment.yaml' -o f.h5 --resume
says '4 of 8 runs kept' log
expect 0 run 'an experiment.yaml' --fault oom@0,skip@1 -o o.h5
expect 1 run 'an experiment.yaml' --fault oom@0 -o o2.h5 --strict

# ---- bad input: one line, exit 2, nothing left behind
find . -name '*.h5*' | sort >"$scratch.before"
expect 2 run
one_line 'no file'
expect 2 run nowhere.yaml -o x.h5
one_line 'no such file'
says 'nowhere.yaml' log
expect 2 run 'an experiment.yaml' -o x.h5 --frobnicate
one_line 'an unknown flag'
expect 2 run 'an experiment.yaml' -o x.h5 --fault crush@1
one_line 'an unknown fault'
expect 2 run 'an experiment.yaml' -o x.h5 --set batch.sise=2
one_line 'a misspelt key'
says 'batch.size' log
expect 2 run 'an experiment.yaml' -o x.h5 --set batch.size=0
one_line 'a value out of range'
expect 2 run 'an experiment.yaml' -o x.h5 --set kv.store=contigous
says 'contiguous' log
expect 2 run 'an experiment.yaml' -o x.h5 -m 'no such/model.gguf'
one_line 'no such model'
says 'no such/model.gguf' log
expect 2 run 'an experiment.yaml' -o x.h5 -m "$DLAB_FIXTURES/tiny.txt"
one_line 'a model that is none'
expect 2 run 'an experiment.yaml' -o . --force
one_line 'a folder as the record'
expect 2 run 'an experiment.yaml' --resume
one_line '--resume without -o'
expect 2 run 'an experiment.yaml' -o x.h5 --resume --force
one_line 'both'
echo 'no record' >notes.txt
expect 2 run 'an experiment.yaml' -o notes.txt --resume
[ "$(cat notes.txt)" = 'no record' ] || fail 'a file that is no record was touched'
rm -rf notes.txt*
find . -name '*.h5*' | sort | cmp -s "$scratch.before" - || fail "bad input left files: $(ls)"

expect 0 run --help
says_not '--fault' out
says 'Example' out
echo "dlab run: all well"
