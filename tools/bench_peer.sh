#!/usr/bin/env bash
# Ours against llama.cpp, run in turns: make bench-peer. Installs llama.cpp's Python binding into build/peer (built from source:
# minutes), fetches the model, makes the peer's other files from it, and measures. Tables go to stdout, a record of each
# case to build/peer/records. docs/peers.md says how to read them.
#   CASES="pp512 tg64"  some of the cases below       QUICK=1   3 pairs of a few short cases
#   BEST="Q4_0 Q8_0"    files beside the same one     PAIRS=6   THREADS=2
#   LLAMA_BENCH=PATH    your own llama-bench instead  PEER_PYTHON=PATH  a Python that has llama-cpp-python
#   DLAB=PATH           a dlab that is built already
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Flags of dlab bench by case. NAME_f32 is the same with `compute: f32`, against the same file alone.
declare -A flags=(
    [pp512]="-p 512 -n 0"
    [tg64]="-p 0 -n 64"
    [tg64_d1024]="-p 0 -n 64 -d 1024"
    [tg64_d4096]="-p 0 -n 64 -d 4096"
    [tg64_d4096_int8]="-p 0 -n 64 -d 4096 -ctk int8 -ctv int8"
    [tg32_npl8]="-p 0 -n 32 -d 128 -npl 8"
    [tg32_npl32]="-p 0 -n 32 -d 128 -npl 32"
)
order=(pp512 tg64 tg64_d1024 tg64_d4096 tg64_d4096_int8 tg32_npl8 tg32_npl32)
all=()
for name in "${order[@]}"; do all+=("$name" "${name}_f32"); done
all+=(first_token)

quick=${QUICK:-}
[ -z "$quick" ] || all=(pp512 tg64 tg64_d1024 first_token)
pairs=${PAIRS:-$([ -z "$quick" ] && echo 6 || echo 3)}
threads=${THREADS:-$(nproc)}
read -r -a cases <<<"${CASES:-${all[*]}}"
read -r -a best <<<"${BEST-Q4_0}"
for name in "${cases[@]}"; do
    [ -n "${flags[${name%_f32}]:-}" ] || [ "$name" = first_token ] || die "CASES: \"$name\" is none of ${order[*]}, these with _f32, first_token"
done

place=$root/build/peer
mkdir -p "$place/records"

# The Python with the binding, on stdout.
install_peer() {
    local list=tools/peer/requirements.txt python=$place/venv/bin/python
    if ! cmp -s "$list" "$place/venv/installed.txt"; then
        say "Installing $(grep -v '^#' "$list") into $place/venv (it is compiled: this takes minutes)"
        rm -rf "$place/venv"
        python3 -m venv "$place/venv" >&2 || die "python3 -m venv failed; tools/deps.sh demo installs what it needs"
        "$python" -m pip install --quiet --disable-pip-version-check --no-input --retries 2 --timeout 20 -r "$list" >&2 ||
            die "the binding cannot be installed. Is there a network? LLAMA_BENCH=PATH measures a llama-bench that you have" 3
        cp "$list" "$place/venv/installed.txt"
    fi
    printf '%s\n' "$python"
}

# peer_file TYPE: where the model's file in the type is. Another model's has another name.
peer_file() {
    local name
    name=$(basename "$model" .gguf)
    printf '%s/%s-%s-%s.gguf\n' "$place" "$name" "$(stat -L -c %s "$model")" "$1"
}

# requantize TYPE: makes that file. What was cut down once is cut again, so it is a file to measure speed with, not quality.
requantize() {
    local out
    out=$(peer_file "$1")
    if [ ! -e "$out" ]; then
        say "Making $out"
        "$python" - "$model" "$out.tmp" "$1" <<'PY' >&2 || die "$out cannot be made"
import ctypes, sys
import llama_cpp as lib
source, out, name = sys.argv[1:]
quiet = lib.llama_log_callback(lambda _level, _text, _data: None)
lib.llama_log_set(quiet, ctypes.c_void_p(0))
params = lib.llama_model_quantize_default_params()
params.ftype = {"Q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0}.get(name) or sys.exit(f"{name}: Q4_0 or Q8_0")
params.allow_requantize = True
sys.exit(lib.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)))
PY
        mv "$out.tmp" "$out"
    fi
}

tools/deps.sh peer
dlab=${DLAB:-$root/build/release/dlab}
[ -n "${DLAB:-}" ] || tools/build.sh release dlab
model=${DLAB_MODEL:-$(tools/fetch_model.sh)} || exit
python=${PEER_PYTHON:-}
if [ -n "${LLAMA_BENCH:-}" ]; then
    peer=llama-bench=$LLAMA_BENCH
else
    [ -n "$python" ] || python=$(install_peer) || exit
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$python" "$root/tools/peer/llama_bench.py" >"$place/llama-python"
    chmod +x "$place/llama-python"
    peer=llama-python=$place/llama-python
fi
files=(same)
if [ -n "$python" ]; then
    for type in "${best[@]}"; do
        requantize "$type"
        files+=("$type")
    done
fi

failed=0
# measure CASE FILE
measure() {
    local name=$1 file=$2 extra=()
    [ "$file" = same ] || extra+=(--peer-model "$(peer_file "$file")")
    [ "$name" = "${name%_f32}" ] || extra+=(--set compute=f32)
    printf '\n## %s, peer on %s\n\n' "$name" "$([ "$file" = same ] && echo 'the same file' || echo "$file")"
    # shellcheck disable=SC2086 # words of a table above
    "$dlab" bench -m "$model" -t "$threads" -r "$pairs" ${flags[${name%_f32}]} --peer "$peer" "${extra[@]}" \
        --record "$place/records/$name-$file.h5" --force || failed=1
}

for name in "${cases[@]}"; do
    if [ "$name" = first_token ]; then
        printf '\n## process start to first token\n\n'
        if [ -z "$python" ]; then
            echo "not measured: it needs the Python binding (PEER_PYTHON, or no LLAMA_BENCH)"
            continue
        fi
        for file in "${files[@]}"; do
            extra=()
            [ "$file" = same ] || extra=(--peer-model "$(peer_file "$file")")
            "$python" tools/peer/first_token.py --dlab "$dlab" --model "$model" -t "$threads" -r "$pairs" "${extra[@]}" || failed=1
        done
        continue
    fi
    for file in "${files[@]}"; do
        [ "$file" = same ] || [ "$name" = "${name%_f32}" ] || continue # compute: f32 is compared like for like
        measure "$name" "$file"
    done
done
exit "$failed"
