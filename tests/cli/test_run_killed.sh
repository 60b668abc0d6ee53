#!/usr/bin/env bash
# A sweep that is killed or interrupted: no worker outlives it, the record is readable, --resume completes it.
set -uo pipefail

scratch=$(mktemp -d "${TMPDIR:-/tmp}/dlab killed XXXXXX")
runner=0
trap '[ "$runner" -eq 0 ] || kill -9 "$runner" 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset DLAB_MODEL

fail() {
    echo "FAIL: $*" >&2
    cat log >&2
    exit 1
}
# Waits until a command succeeds, at most 30 s.
wait_for() {
    local i
    for ((i = 0; i < 300; i++)); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}
parts() { [ "$(find "$1.parts" -name '*.h5' 2>/dev/null | wc -l)" -ge "$2" ]; }
workers_of() { pgrep -P "$1" 2>/dev/null; }
gone() { ! kill -0 "$1" 2>/dev/null; }
runs_in() { "$DLAB" show "$1" --point "$2" --format json | tr ',' '\n' | grep -c '"repeat"'; }

cat >x.yaml <<'YAML'
name: x
model: synthetic:tiny
plan: {batch.size: [1, 2, 3]}
workload: {prompt: 8, output: 4}
measure: {repeats: 3, warmup: 0}
YAML

# The third point hangs, so the runner is caught in the middle of its first round.
start() { # RECORD
    # a shell without job control has its background jobs ignore SIGINT, and dlab keeps it so
    env --default-signal=INT "$DLAB" run x.yaml --fault hang@2 -o "$1" >out 2>log &
    runner=$!
    wait_for parts "$1" 2 || fail 'no runs within 30 s'
    wait_for worker_hangs || fail 'the third worker never came'
    mapfile -t workers < <(workers_of "$runner")
}
worker_hangs() { [ "$(workers_of "$runner" | wc -l)" -eq 3 ]; }

check_no_workers() {
    local w
    for w in "${workers[@]}"; do
        wait_for gone "$w" || fail "worker $w outlived its runner"
    done
}

# ---- kill -9
start k.h5
[ "${#workers[@]}" -eq 3 ] || fail "expected three workers alive, there are ${#workers[@]}"
kill -9 "$runner"
wait "$runner" 2>/dev/null
runner=0
check_no_workers
"$DLAB" show k.h5 >out 2>>log || fail 'the record of a killed run is not readable'
grep -q pending out || fail 'a point that has not run is not pending'
"$DLAB" run x.yaml -o k.h5 --resume >out 2>log || fail "--resume: exit $?"
grep -q '2 of 9 runs kept' log || fail 'the runs before the kill were not kept'
for point in 1 2 3; do
    [ "$(runs_in k.h5 $point)" -eq 3 ] || fail "point $point has $(runs_in k.h5 $point) runs, expected 3"
done
[ ! -e k.h5.parts ] || fail 'parts are left'
[ -z "$(find . -name '*.tmp.*')" ] || fail 'temporary files are left'

# ---- SIGINT and SIGTERM
for signal in INT TERM; do
    start "$signal.h5"
    kill -"$signal" "$runner"
    wait "$runner"
    code=$?
    runner=0
    [ "$code" -eq 130 ] || fail "SIG$signal: exit $code, expected 130"
    grep -q -- '--resume' log || fail "SIG$signal: the way on is not said"
    check_no_workers
    "$DLAB" show "$signal.h5" >out 2>>log || fail "SIG$signal: the record is not readable"
done
"$DLAB" run x.yaml -o INT.h5 --resume >out 2>log || fail "--resume after SIGINT: exit $?"

# ---- a record that somebody is writing
start busy.h5
"$DLAB" run x.yaml -o busy.h5 --resume >out 2>log2
code=$?
[ "$code" -eq 2 ] || fail "a second runner: exit $code, expected 2"
grep -q 'another dlab' log2 || fail "a second runner: $(cat log2)"
kill -9 "$runner"
wait "$runner" 2>/dev/null
runner=0
echo "dlab run, killed: all well"
