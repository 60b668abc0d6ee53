#!/usr/bin/env bash
# show, export and plot on a record that `dlab run` made here, in a folder whose name has a space.
set -uo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL
export XDG_CACHE_HOME="$scratch/empty"
fail() {
    echo "test_commands_record: $1" >&2
    [ ! -s "$scratch/err" ] || cat "$scratch/err" >&2
    exit 1
}
ok() {
    "$DLAB" "$@" >"$scratch/out" 2>"$scratch/err" || fail "dlab $*: exit $?"
}
refused() {
    local pattern=$1 code=0
    shift
    "$DLAB" "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
    [ "$code" = 2 ] || fail "dlab $*: exit $code, expected 2"
    [ "$(wc -l <"$scratch/err")" = 1 ] || fail "dlab $*: not one line"
    grep -qE -- "$pattern" "$scratch/err" || fail "dlab $*: does not match /$pattern/"
}

folder="$scratch/a folder"
mkdir "$folder"
cat >"$folder/small.yaml" <<'YAML'
name: small
model: synthetic:tiny
plan:
  kv.store: [contiguous, none]
workload:
  prompt: 8
  output: 4
measure:
  repeats: 2
report:
  metrics: [ttft, tpot]
plots:
  - name: tpot
    template: bars
    title: "Cost of a token"
    x: kv.store
    y: tpot
YAML
record="$folder/small.h5"
ok run "$folder/small.yaml" -o "$record" --plots none -q
[ -s "$record" ] || fail "no record"

ok show "$record"
for word in kv.store tpot none contiguous; do grep -q "$word" "$scratch/out" || fail "show lacks $word"; done
ok show "$record" --format csv
[ "$(wc -l <"$scratch/out")" -ge 3 ] || fail "show's CSV has no two rows"
ok show "$record" -o json --point 2
for word in '"status": "ok"' '"kv.store": "none"' '"tpot"' '"repeat": 1'; do
    grep -qF "$word" "$scratch/out" || fail "show --point lacks $word"
done
ok show "$record" --point 1
grep -q "| tpot " "$scratch/out" || fail "show --point has no metrics"
ok show "$record" --point 1 --format csv
[ "$(awk -F, 'NR == 1 { n = NF } NF != n' "$scratch/out" | wc -l)" = 0 ] || fail "a row of show --point is not as wide as its head"
refused "point.* 3.*2 points" show "$record" --point 3
refused "point: 0 is out of range" show "$record" --point 0

ok export "$record"
[ "$(wc -l <"$scratch/out")" = 3 ] || fail "export has not a row a point"
ok export "$record" --runs --format csv
[ "$(wc -l <"$scratch/out")" = 5 ] || fail "export --runs has not a row a run"
ok export "$record" --format json -o "$folder/out file.json"
[ ! -s "$scratch/out" ] || fail "export -o prints, too"
grep -q '"schema"' "$folder/out file.json" || fail "export -o has no document"
refused "no/such/folder" export "$record" -o "$folder/no/such/folder/x.csv"
refused "xml" export "$record" --format xml

ok plot "$record" -d "$folder/pictures"
for file in tpot.dat tpot.gp; do [ -s "$folder/pictures/$file" ] || fail "plot made no $file"; done
if command -v gnuplot >/dev/null; then
    for file in tpot.svg tpot.png; do [ -s "$folder/pictures/$file" ] || fail "plot made no $file"; done
fi
while read -r path; do [ -s "$path" ] || fail "plot names $path, which is not there"; done <"$scratch/out"
ok plot "$record"
[ -d "$folder/small.plots" ] || fail "plot's own folder is not beside the record"
printf x >"$folder/file"
refused "file" plot "$record" -d "$folder/file/below"

sed '/^plots:/,$d' "$folder/small.yaml" >"$folder/bare.yaml"
ok run "$folder/bare.yaml" -o "$folder/bare.h5" -q
refused "no .plots:. section" plot "$folder/bare.h5"
head -c 2000 "$record" >"$folder/cut.h5"
for c in show export plot; do refused "cut.h5" "$c" "$folder/cut.h5"; done
echo "a record can be shown, exported and drawn"
