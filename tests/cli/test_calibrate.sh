#!/usr/bin/env bash
# dlab calibrate: what it prints and keeps, what bench and run make of it. No figure is compared with another.
set -uo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL DLAB_CALIBRATION
export XDG_CACHE_HOME="$scratch/a cache"
kept="$XDG_CACHE_HOME/decodelab/calibration"
fail() {
    echo "test_calibrate: $1" >&2
    [ ! -s "$scratch/err" ] || cat "$scratch/err" >&2
    exit 1
}
is() {
    [ "$2" = "$3" ] || fail "$1: \"$2\", expected \"$3\""
}
# field NAME: the column of the last row of a csv in $scratch/out.
field() {
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } END { print $at[name] }' "$scratch/out"
}
# is_share WHOSE NAME: the metric is there; a roofline is at most 1, however busy the machine was when it was calibrated.
is_share() {
    local most=1e6
    [[ $2 != roofline* ]] || most=1
    awk -v v="$(field "$2")" -v most="$most" 'BEGIN { exit !(v > 0 && v <= most) }' || fail "$1's $2: \"$(field "$2")\""
}

# ---- the command
"$DLAB" calibrate -t 1,2,1 --isa plain >"$scratch/out" 2>"$scratch/err" || fail "calibrate"
is "rows: three peaks and 14 working sets" "$(grep -cE '^\| (FP32|bf16|int8|read)' "$scratch/out")" 17
grep -qE "^\\| at most +\\| +1 thread +\\| +2 threads +\\|\$" "$scratch/out" || fail "no column for each number of threads"
grep -qE '^\| read 256.0 MiB, GB/s +\| +[0-9.]+ \| +[0-9.]+ \|$' "$scratch/out" || fail "no figure for each number of threads"
is "one file is kept" "$(find "$kept" -type f | wc -l)" 1
file=$(find "$kept" -type f)
grep -qF "kept in $file" "$scratch/out" || fail "it is not said where"
before=$(cat "$file")
"$DLAB" calibrate -t 2 --isa plain -o json >"$scratch/out" 2>"$scratch/err" || fail "again"
is "lines on standard error" "$(wc -l <"$scratch/err")" 1
grep -q "nothing to measure.*--force" "$scratch/err" || fail "what is kept is measured again"
is "what is printed is what is kept" "$(cat "$scratch/out")" "$before"
is "what is kept stays" "$(cat "$file")" "$before"

# ---- runs: what is kept is used, and nothing is said
"$DLAB" bench -m synthetic:tiny -p 8 -n 4 -r 1 -t 2 --isa plain -o csv >"$scratch/out" 2>"$scratch/err" || fail "bench"
[ ! -s "$scratch/err" ] || fail "something is said although figures are kept"
for name in roofline mbu mfu; do is_share "bench" "$name"; done
"$DLAB" bench -m synthetic:tiny -p 8 -n 4 -r 1 -t 2 --isa plain >"$scratch/out" 2>/dev/null || fail "bench md"
for column in "roofline %" "mbu %"; do
    head -1 "$scratch/out" | grep -qE "\| *$column \|" || fail "the table lacks $column"
done
tail -1 "$scratch/out" | grep -q '–' && fail "a generation test has something missing: $(tail -1 "$scratch/out")"
cat >"$scratch/small.yaml" <<'YAML'
name: small
plan: {isa: plain, threads: 2, batch.size: [1, 2]}
workload: {prompt: 8, output: 4}
measure: {repeats: 1, warmup: 0}
report: {metrics: [roofline, mbu, mfu, roofline_prefill]}
YAML
"$DLAB" run "$scratch/small.yaml" -m synthetic:tiny -o "$scratch/r.h5" --format csv >"$scratch/out" 2>"$scratch/err" || fail "run"
grep -q "does at most" "$scratch/err" && fail "run measures what is kept"
"$DLAB" export "$scratch/r.h5" >"$scratch/out" || fail "export"
for name in roofline mbu mfu roofline_prefill; do is_share "run" "$name"; done
"$DLAB" export "$scratch/r.h5" --table peaks >"$scratch/out" || fail "export --table peaks"
is "each run has the peaks" "$(wc -l <"$scratch/out")" 29

# ---- a damaged file is said, and replaced; other numbers of threads are measured in passing
echo '{"v": 2' >"$file"
"$DLAB" bench -m synthetic:tiny -p 0 -n 4 -r 1 -t 1 --isa plain -o csv >"$scratch/out" 2>"$scratch/err" || fail "bench, damaged"
is "lines on standard error" "$(wc -l <"$scratch/err")" 2
sed -n 1p "$scratch/err" | grep -qF "$file" || fail "the damaged file is not named"
sed -n 2p "$scratch/err" | grep -q "(threads: 1, isa: plain), about 2 s" || fail "the measuring is not told"
[ -n "$(field roofline)" ] || fail "no roofline after a calibration in passing"
is "still one file" "$(find "$kept" -type f | wc -l)" 1
grep -q '"quick": true' "$file" || fail "a calibration in passing is not marked as one"

# ---- off: nothing is measured, nothing used, nothing is 0
rm -r "$XDG_CACHE_HOME"
DLAB_CALIBRATION=off "$DLAB" bench -m synthetic:tiny -p 0 -n 4 -r 1 -t 1 -o csv >"$scratch/out" 2>"$scratch/err" || fail "off"
[ ! -s "$scratch/err" ] || fail "off, and yet something is said"
[ ! -e "$XDG_CACHE_HOME" ] || fail "off, and yet something is kept"
for name in roofline mbu mfu; do is "$name without a calibration" "$(field "$name")" ""; done
"$DLAB" bench -m synthetic:tiny -p 0 -n 4 -r 1 -t 1 --set device=ref -o csv >"$scratch/out" 2>"$scratch/err" || fail "ref"
is "roofline of a device without probes" "$(field roofline)" ""
[ ! -e "$XDG_CACHE_HOME" ] || fail "another device is calibrated"

# ---- a folder that takes nothing is one line, not the end
touch "$XDG_CACHE_HOME"
"$DLAB" bench -m synthetic:tiny -p 0 -n 4 -r 1 -t 1 -o csv >"$scratch/out" 2>"$scratch/err" || fail "no folder: bench ends"
is "lines on standard error" "$(wc -l <"$scratch/err")" 1
grep -q "roofline, mbu and mfu will be missing" "$scratch/err" || fail "it is not said what will be missing"
code=0
"$DLAB" calibrate -t 1 >"$scratch/out" 2>"$scratch/err" || code=$?
is "calibrate that cannot keep anything: exit code" "$code" 2
code=0
"$DLAB" calibrate --isa sse2 >"$scratch/out" 2>"$scratch/err" || code=$?
is "an instruction set that is not known: exit code" "$code" 2
is "lines on standard error" "$(wc -l <"$scratch/err")" 1
echo "calibrate keeps what it finds"
