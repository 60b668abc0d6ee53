#!/usr/bin/env bash
# dlab bench --peer, with a shell script in the peer's place: who runs when, what the ratio is, what becomes of a peer that
# misbehaves, what the record keeps.
set -uo pipefail

scratch=$(mktemp -d "${TMPDIR:-/tmp}/dlab peer XXXXXX")
trap 'rm -rf "$scratch"' EXIT
unset DLAB_MODEL
export XDG_CACHE_HOME="$scratch/empty" PEER_SCRATCH="$scratch"
fail() {
    echo "test_bench_peer: $1" >&2
    [ ! -s "$scratch/err" ] || cat "$scratch/err" >&2
    exit 1
}
is() {
    [ "$2" = "$3" ] || fail "$1: \"$2\", expected \"$3\""
}

# Answers like llama-bench, with 1, 2, 3 … ms in turn (-fa 0: 10 ms less one for each), and keeps its arguments. What the
# file `do` has is run first.
cat >"$scratch/llama-bench" <<'SH'
#!/usr/bin/env bash
echo "$*" >>"$PEER_SCRATCH/asked"
n=$(wc -l <"$PEER_SCRATCH/asked")
[ ! -e "$PEER_SCRATCH/do" ] || source "$PEER_SCRATCH/do"
npl=1
while [ $# -gt 0 ]; do
    case $1 in
    -p) p=$2 ;;
    -n) g=$2 ;;
    -pg) p=${2%,*} g=${2#*,} ;;
    -d) d=$2 ;;
    -b) b=$2 ;;
    -ub) ub=$2 ;;
    -t) t=$2 ;;
    -fa) fa=$2 ;;
    -npl) npl=$2 ;;
    -ctk) k=$2 ;;
    -ctv) v=$2 ;;
    esac
    shift 2
done
ns=${n}000000
echo "a word before" >&2
echo '{"build_commit":"0c1e570","build_number":6123,"backends":"CPU","n_prompt":'"$p"',"n_gen":'"$g"',"n_depth":'"$d"',"npl":'"$npl"',"n_batch":'"$b"',"n_ubatch":'"$ub"',"n_threads":'"$t"',"flash_attn":'"$fa"',"type_k":"'"$k"'","type_v":"'"$v"'","model_n_params":'"$PEER_PARAMS"',"samples_ns":['"$ns"']}'
SH
chmod +x "$scratch/llama-bench"
echo "not read by the script" >"$scratch/best.gguf"
peer=(--peer "llama-bench=$scratch/llama-bench" --peer-model "$scratch/best.gguf")

# bench ARG...: exit code kept in $code.
bench() {
    rm -f "$scratch/asked"
    : >"$scratch/asked"
    code=0
    "$DLAB" bench -m synthetic:tiny "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
}
# field NAME: of the one row of jsonl.
field() { sed -nE 's/.*"'"$1"'":("[^"]*"|\[[^]]*\]|[^],}]*).*/\1/p' "$scratch/out"; }

bench -p 8 -n 0 -r 1 -o jsonl
PEER_PARAMS=$(field model_n_params)
export PEER_PARAMS

# ours, peer, peer, ours, …, at least 6 pairs, one process a run, our warm-up before the first alone
bench -p 8 -n 0 -t 1 --peer-fa 1 "${peer[@]}" --progress -o jsonl
is "exit code" "$code" 0
turns=$(sed -nE 's/^dlab bench: pp8: (run|llama-bench: run|warmup).*/\1/p' "$scratch/err" | sed -e 's/llama-bench: run/P/' -e 's/run/O/' -e 's/warmup/w/' | tr -d '\n')
is "turns" "$turns" "OwPPOOPPOOPPO"
is "processes" "$(wc -l <"$scratch/asked")" 6
is "what each is asked" "$(sort -u "$scratch/asked")" "-m $scratch/best.gguf -p 8 -n 0 -d 0 -b 2048 -ub 512 -t 1 -fa 1 -ctk f16 -ctv f16 -ngl 0 -r 1 -o jsonl"
is "pairs" "$(field ratio_pairs)" 6
is "its times" "$(field peer_samples_ns | sed 's/\.0*//g')" "[1000000,2000000,3000000,4000000,5000000,6000000]"
is "its build" "$(field peer_build)" '"0c1e570 (6123), CPU"'
is "its file" "$(field peer_model_filename)" "\"$scratch/best.gguf\""
is "its status" "$(field peer_status)" '"ok"'
# the geometric mean of the pairs' ratios, and Student's t for 5 degrees of freedom
awk -v ours="$(field samples_ts | tr -d '[]')" -v theirs="$(field peer_samples_ts | tr -d '[]')" \
    -v ratio="$(field ratio)" -v low="$(field ratio_low)" -v high="$(field ratio_high)" '
    function off(a, b) { return a / b > 1 + 1e-9 || a / b < 1 - 1e-9 }
    BEGIN {
        n = split(ours, a, ","); split(theirs, b, ",")
        for (i = 1; i <= n; i++) sum += d[i] = log(a[i] / b[i])
        for (i = 1; i <= n; i++) squares += (d[i] - sum / n) ^ 2
        half = 2.5705818356363146 * sqrt(squares / (n - 1) / n)
        exit n != 6 || off(ratio, exp(sum / n)) || off(low, exp(sum / n - half)) || off(high, exp(sum / n + half))
    }' || fail "the ratio or its interval is another: $(cat "$scratch/out")"

# both of its ways of attention are tried, the faster one is measured: the first to be tried is faster here
bench -p 0 -n 4 -d 16 -r 2 "${peer[@]}" -o jsonl
is "attention tried" "$(sed -E 's/.*-d 16 .*-fa ([01]).*/\1/' "$scratch/asked" | tr -d '\n')" 1011
is "attention measured" "$(field peer_flash_attn)" 1
# with the other way round it is the other; and the one that fails is not chosen
# shellcheck disable=SC2016 # for the script
echo 'case " $* " in *" -fa 1 "*) echo "needs no flash" >&2; exit 1 ;; esac' >"$scratch/do"
bench -p 0 -n 4 -r 2 "${peer[@]}" -o jsonl
is "attention left" "$code $(field peer_flash_attn) $(field peer_status)" '0 0 "ok"'
rm "$scratch/do"

# our int8 beside its q8_0, both names in the table; both files and the build below it
bench -p 0 -n 0 -pg 8,4 -r 2 -ctk int8 --peer-fa 0 "${peer[@]}"
grep -q -- "-p 0 -n 0 -pg 8,4 .*-ctk q8_0 -ctv f16" "$scratch/asked" || fail "asked: $(cat "$scratch/asked")"
head -1 "$scratch/out" | grep -qE '\| +peer t/s \| peer fa \| +ratio \| +95 % interval \|' || fail "columns: $(head -1 "$scratch/out")"
sed -n 3p "$scratch/out" | grep -qE '\| int8 / q8_0 \| +pp8\+tg4 .*\|       0 \| +[0-9.]+ \| +[0-9.]+ – [0-9.]+ \|$' || fail "row: $(sed -n 3p "$scratch/out")"
grep -qE '^ours: build .*, synthetic:tiny$' "$scratch/out" || fail "our model is not named"
grep -qF "peer: llama-bench $scratch/llama-bench, build 0c1e570 (6123), CPU, on $scratch/best.gguf" "$scratch/out" || fail "the peer is not named"
for format in csv sql json; do
    bench -p 8 -n 0 -r 2 --peer-fa 1 "${peer[@]}" -o "$format"
    grep -q ratio_low "$scratch/out" || fail "-o $format lacks the ratio"
    grep -qF '0c1e570 (6123), CPU' "$scratch/out" || fail "-o $format lacks the peer"
done
bench -p 8 -n 0 -r 1 --peer-fa 1 "${peer[@]}" -o jsonl
is "one pair has no interval" "$(field ratio_low) $(field ratio_high) $(field ratio_pairs)" "null null 1"
bench -p 8 -n 0 -r 2 -o jsonl
is "without a peer" "$(field peer) $(field ratio) $(field peer_status)" "null null null"

# what it cannot do: no ratio, the reason, and ours all the same
bench -p 8 -n 0 -npl 2 -r 2 "${peer[@]}" -o jsonl
is "-npl" "$code $(field status) $(field peer_status) $(field peer_reason) $(field ratio)" '0 "ok" "skipped" "llama-bench has no -npl" null'
is "-npl: processes" "$(wc -l <"$scratch/asked")" 0
bench -p 8 -n 0 -npl 2 -r 2 "${peer[@]}" --strict
is "--strict" "$code" 1
bench -p 8 -n 0 -npl 2 -r 2 --peer-fa 1 --peer "llama-python=$scratch/llama-bench" --peer-model "$scratch/best.gguf" -o jsonl
is "llama-python" "$code $(field peer_status)" '0 "ok"'
grep -q -- "-npl 2 -r 1" "$scratch/asked" || fail "asked: $(cat "$scratch/asked")"
bench -p 8 -n 0 -r 2 -ctv fp8 "${peer[@]}" -o jsonl
is "fp8" "$code $(field peer_status) $(field peer_reason)" '0 "skipped" "the peer has nothing like kv.v=fp8"'
bench -p 8 -n 0 -r 2 --peer "llama-bench=$scratch/llama-bench" -o jsonl
is "no file" "$code $(field peer_status)" '0 "skipped"'
bench -p 100000 -n 0 -r 2 "${peer[@]}" -o jsonl
is "ours cannot" "$code $(field status) $(field peer_status) $(field peer_reason)" '0 "skipped" "skipped" "ours is skipped"'

# misbehaves STATUS PATTERN SCRIPT [TIMEOUT_S]: the peer's part is missing with its reason, ours is measured, exit code 1
misbehaves() {
    echo "$3" >"$scratch/do"
    bench -p 8 -n 0 -r 4 --peer-fa 1 --peer-timeout "${4:-60}" "${peer[@]}" -o jsonl
    rm "$scratch/do"
    is "$3" "$code $(field status) $(field peer_status) $(field ratio)" "1 \"ok\" \"$1\" null"
    field peer_reason | grep -q -- "$2" || fail "$3: reason $(field peer_reason)"
    is "$3: our runs" "$(field samples_ns | tr ',' '\n' | wc -l)" 4
}
misbehaves failed 'exit code 3; it said: cannot load' 'echo "cannot load" >&2; exit 3'
misbehaves failed 'killed by signal 9' 'kill -KILL $$'
misbehaves failed 'printed no line of JSON' 'echo garbage; exit 0'
misbehaves failed 'not valid JSON' 'echo "{]"; exit 0'
misbehaves failed 'asked for n_prompt 8, it answers 512' 'set -- -p 512 -n 0 -d 0 -b 2048 -ub 512 -t 1 -fa 1 -ctk f16 -ctv f16'
misbehaves failed "asked for model_n_params $PEER_PARAMS, it answers 7" 'PEER_PARAMS=7'
misbehaves hung 'did not end within 1 s: killed' 'sleep 1000' 1
misbehaves failed 'printed over' 'head -c 3000000 /dev/zero; exit 0'
# shellcheck disable=SC2016 # for the script
misbehaves failed 'exit code 7' '[ "$n" -lt 3 ] || exit 7'
is "the runs before it failed" "$(field peer_samples_ns | sed 's/\.0*//g')" "[1000000,2000000]"

# a parent that has children's ends ignored: a peer's failure is still seen
echo 'echo "cannot load" >&2; exit 3' >"$scratch/do"
env --ignore-signal=CHLD "$DLAB" bench -m synthetic:tiny -p 8 -n 0 -r 1 --peer-fa 1 "${peer[@]}" -o jsonl >"$scratch/out" 2>"$scratch/err"
is "SIGCHLD ignored" "$? $(field peer_status)" '1 "failed"'
# the terminal goes: the peer goes with us
# shellcheck disable=SC2016 # for the script
echo 'echo $$ >"$PEER_SCRATCH/pid.new"; mv "$PEER_SCRATCH/pid.new" "$PEER_SCRATCH/pid"; exec sleep 1000' >"$scratch/do"
env --default-signal=HUP "$DLAB" bench -m synthetic:tiny -p 8 -n 0 -r 1 --peer-fa 1 "${peer[@]}" >"$scratch/out" 2>"$scratch/err" &
ours=$!
until [ -e "$scratch/pid" ] || ! kill -0 "$ours"; do sleep 0.05; done
kill -HUP "$ours"
code=0
wait "$ours" || code=$?
is "SIGHUP" "$code" 130
kill -0 "$(cat "$scratch/pid")" 2>/dev/null && fail "the peer outlives us"
rm "$scratch/do"

# refused PATTERN ARG...: exit 2, one line, nothing printed
refused() {
    local pattern=$1
    shift
    bench "$@"
    is "$*: exit code" "$code" 2
    [ ! -s "$scratch/out" ] || fail "$*: something was printed"
    is "$*: lines on standard error" "$(wc -l <"$scratch/err")" 1
    grep -q -- "$pattern" "$scratch/err" || fail "$*: does not match \"$pattern\""
}
refused "is not KIND=PATH; the kinds are llama-bench, llama-python" --peer llama-bench
refused "\"ollama\" is not one of" --peer ollama=/bin/true
refused "not there or not executable" --peer llama-bench="$scratch/best.gguf"
refused "not there or not executable" --peer llama-bench=/nowhere/llama-bench
refused "is not a program on PATH" --peer llama-bench=no-such-llama-bench
refused "--peer-model: /nowhere.gguf is not there" --peer-model /nowhere.gguf
refused "--peer-fa: 2 is out of range" --peer-fa 2

# the record: our runs as `dlab run` keeps them, and what the peer measured
record="$scratch/a record.h5"
bench -p 8 -n 4 -npl 1,2 -r 2 --peer-fa 1 "${peer[@]}" --record "$record"
is "--record: exit code" "$code" 0
is "--record: what is left" "$(find "$scratch" -name 'a record*' | wc -l)" 1
"$DLAB" show "$record" >"$scratch/out" 2>"$scratch/err" || fail "dlab show"
[ ! -s "$scratch/err" ] || fail "dlab show complains"
is "dlab show: rows" "$(grep -cE '^\| +[0-9]+ \| ' "$scratch/out")" 4
grep -qF "peer: kind llama-bench, path $scratch/llama-bench, build 0c1e570 (6123), CPU, model $scratch/best.gguf" "$scratch/out" || fail "dlab show: the peer is not named"
grep -qE '^\| pp8 +\| +1 \| [0-9.]+ \([0-9.]+ to [0-9.]+\)' "$scratch/out" || fail "dlab show: no ratio"
grep -qE '^\| tg4 npl2 +\| +\| skipped: llama-bench has no -npl' "$scratch/out" || fail "dlab show: no reason"
"$DLAB" show "$record" --point 1 --format json 2>"$scratch/err" | tr -d ' \n' >"$scratch/point"
for want in '"peer_first":false' '"peer_first":true' '"peer_ns":1000000.0' '"peer_ns":2000000.0' '"ours_rate":' '"flash_attn":1' '"repeat":1'; do
    grep -qF "$want" "$scratch/point" || fail "the record lacks $want: $(sed 's/.*"peer"/"peer"/' "$scratch/point")"
done
refused "exists: replace it with --force, or give another name" --record "$record" -p 8 -n 0 -r 1
refused "is there already and is no record" --record "$scratch/best.gguf" --force
bench -p 8 -n 0 -r 1 --record "$record" --force
"$DLAB" show "$record" 2>/dev/null | grep -q peer && fail "a record without a peer speaks of one"
if [ -n "${DLAB_PYTHON:-}" ] && "$DLAB_PYTHON" -c 'import h5py' 2>/dev/null; then
    bench -p 8 -n 0 -npl 1,2 -r 2 --peer-fa 1 "${peer[@]}" --record "$record" --force -o jsonl
    "$DLAB_PYTHON" - "$record" "$(field model_hash | head -1)" >"$scratch/out" 2>"$scratch/err" <<'PY' || fail "h5py"
import sys
import h5py

with h5py.File(sys.argv[1], "r") as f:
    pairs, points = f["peer"][:], f["peer_points"][:]
    assert pairs["point"].tolist() == [0, 0] and pairs["pair"].tolist() == [0, 1]
    assert pairs["peer_first"].tolist() == [0, 1] and pairs["peer_ns"].tolist() == [1e6, 2e6]
    assert f["peer"].attrs["kind"] == b"llama-bench" and f["peer"].attrs["build"] == b"0c1e570 (6123), CPU"
    assert f["peer"].attrs["peer_ns.unit"] == b"ns" and f["peer_points"].attrs["ratio.unit"] == b"1"
    assert points["status"].tolist() == [b"ok", b"skipped"] and points["point"].tolist() == [0, 1]
    assert f["meta"].attrs["model_hash"].decode() == sys.argv[2].strip('"'), "one hash for one model"
    run = f["runs/0001"]
    assert run.attrs["point"] == 0 and run.attrs["repeat"] == 1 and len(run["tokens"]) == 1
    assert run["tokens"]["t"][0] == pairs["ours_ns"][1], "the pair is the run's own time"
PY
fi
echo "a peer is measured in turns"
