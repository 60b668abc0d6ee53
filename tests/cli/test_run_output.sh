#!/usr/bin/env bash
# An output folder that cannot be written is found before anything is measured; one that fills up ends the sweep cleanly.
set -uo pipefail

scratch=$(mktemp -d "${TMPDIR:-/tmp}/dlab output XXXXXX")
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
cd "$scratch" || exit 1
unset DLAB_MODEL

fail() {
    echo "FAIL: $*" >&2
    [ ! -f log ] || cat log >&2
    exit 1
}
refused() { # WHAT COMMAND...
    local what=$1 code=0
    shift
    "$@" >out 2>log || code=$?
    [ "$code" -eq 2 ] || fail "$what: exit $code, expected 2"
    [ "$(wc -l <log)" -eq 1 ] || fail "$what: expected one line"
    [ ! -s out ] || fail "$what: something was printed"
}

cat >x.yaml <<'YAML'
name: x
model: synthetic:tiny
plan: {batch.size: [1, 2]}
workload: {prompt: 8, output: 4}
measure: {repeats: 2, warmup: 0}
YAML

refused 'a folder below a file' "$DLAB" run x.yaml -q -o x.yaml/r.h5
refused 'a folder of the kernel' "$DLAB" run x.yaml -q -o /proc/r.h5

mkdir locked
chmod 555 locked
if [ "$(id -u)" -ne 0 ]; then
    refused 'a read-only folder' "$DLAB" run x.yaml -q -o locked/r.h5
elif command -v setpriv >/dev/null && setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$DLAB"; then
    refused 'a read-only folder' setpriv --reuid=65534 --regid=65534 --clear-groups "$DLAB" run x.yaml -q -o locked/r.h5
else
    echo "skipped: a read-only folder (root writes everywhere, and nobody cannot run $DLAB)" >&2
fi
[ -z "$(ls -A locked)" ] || fail 'something was written into a read-only folder'

# ---- a closed loop that its duration should end, and its prepared requests do: in the table, and where it is shown again
cat >closed.yaml <<'YAML'
name: closed
model: synthetic:tiny
plan: {threads: 1}
workload: {kind: closed, duration: 1000000s, prompt: 1, output: 1}
measure: {repeats: 1}
YAML
"$DLAB" run closed.yaml -q -o closed.h5 >out 2>log || fail 'a closed loop'
grep -q 'warning: its requests were used up after' out || fail 'nothing is said of requests that were used up'
"$DLAB" show closed.h5 | grep -q 'warning: its requests were used up after' || fail 'show does not say it again'
"$DLAB" run closed.yaml -q --force -o closed.h5 --set workload.requests=3 >out 2>log || fail 'a closed loop of three'
grep -q 'used up' out && fail 'so many were asked for'

# ---- a full disk: a small tmpfs in a mount namespace of its own, where the system lets us have one
mkdir disk
if unshare --map-root-user --mount bash -c 'mount -t tmpfs none disk' 2>log; then
    # shellcheck disable=SC2016
    refused 'a full disk' unshare --map-root-user --mount bash -c \
        'mount -t tmpfs -o size=8k none disk && exec "$1" run x.yaml -q -o disk/r.h5' bash "$DLAB"
    # room for the first master but not for the parts: ends with one line, and no file of its own half-written
    # shellcheck disable=SC2016
    unshare --map-root-user --mount bash -c '
        mount -t tmpfs -o size=400k none disk
        "$1" run x.yaml -q -o disk/r.h5 --set batch.size=[1,2,3,4,5,6,7,8] --set measure.repeats=20 >out 2>log
        echo $? >code
        find disk -name "*.tmp.*" >left' bash "$DLAB"
    [ "$(cat code)" -eq 2 ] || fail "a disk that fills up: exit $(cat code), expected 2"
    [ "$(wc -l <log)" -eq 1 ] || fail 'a disk that fills up: expected one line'
    [ ! -s left ] || fail "a disk that fills up: left $(cat left)"
else
    echo "skipped: a full disk (no mount namespace here: $(tail -1 log))" >&2
fi
echo "dlab run, output: all well"
