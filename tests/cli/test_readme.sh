#!/usr/bin/env bash
# Every command that the README shows is run, with a tiny model, in an empty folder; its experiment is run too. Make
# targets are checked to exist: the demo and the tests are what continuous integration itself calls.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readme=$DLAB_SOURCE/README.md
mkdir -p "$work/build/release"
ln -s "$DLAB" "$work/build/release/dlab"
ln -s "$DLAB_SOURCE/experiments" "$work/experiments"
cd "$work"
real=${DLAB_MODEL:-}
export DLAB_MODEL=synthetic:tiny-q4

# The lines of fenced blocks of one language.
blocks() { awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "$readme"; }

n=0
while IFS= read -r line; do
    case $line in
    '' | '#'*) continue ;;
    make\ *)
        make -n -C "$DLAB_SOURCE" "${line#make }" >/dev/null || { echo "README: '$line' is no target" >&2; exit 1; }
        ;;
    build/release/dlab\ *)
        # A whole experiment of the README is run with what the tiny model can hold.
        if ! bash -c "$line" >out.txt 2>err.txt </dev/null; then
            echo "README: '$line' failed:" >&2
            cat out.txt err.txt >&2
            exit 1
        fi
        [ -s out.txt ] || { echo "README: '$line' printed nothing" >&2; exit 1; }
        ;;
    *)
        echo "README: a command that this test cannot run: '$line'" >&2
        exit 1
        ;;
    esac
    n=$((n + 1))
done < <(blocks sh)
# A block of bash is a session: a server in the background and its client, with the model that the README means.
if [ -f "$real" ]; then
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    blocks bash | sed "s/\b8080\b/$port/g" >session.sh
    grep -q 'dlab serve' session.sh || { echo "README: no session with a server" >&2; exit 1; }
    DLAB_MODEL=$real bash -eu session.sh >out.txt 2>err.txt </dev/null || { cat out.txt err.txt >&2; exit 1; }
    [ -s served.h5 ] || { cat out.txt err.txt >&2; echo "README: its session left no record" >&2; exit 1; }
    n=$((n + 1))
else
    [ "${DLAB_REQUIRE_MODEL:-0}" = 0 ] || { echo "README: no model for its session with a server" >&2; exit 1; }
    echo "the README's session with a server was not run: no model"
fi
[ "$n" -ge 15 ] || { echo "README: only $n commands were found" >&2; exit 1; }

blocks yaml >my-first.yaml
"$DLAB" run my-first.yaml -o my-first.h5 >out.txt 2>err.txt || { cat out.txt err.txt >&2; exit 1; }
grep -q unfused out.txt
[ -s my-first.plots/tpot.svg ] || { echo "README: its experiment made no picture" >&2; exit 1; }

# The table that it promises is there, with a picture that exists.
grep -q '^| kv.store .* speedup |$' "$readme" || { echo "README: the quickstart's table is missing" >&2; exit 1; }

# Links to files of ours lead somewhere.
grep -oE '\]\([^)#]+\)' "$readme" | sed 's/^](//; s/)$//' | while IFS= read -r link; do
    case $link in http*) continue ;; esac
    [ -e "$DLAB_SOURCE/$link" ] || { echo "README: $link does not exist" >&2; exit 1; }
done
echo "$n commands of the README ran"
