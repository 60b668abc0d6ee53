#!/usr/bin/env bash
# dlab serve over HTTP with nothing but Python's own library: what is answered and refused, how it ends, and 500 streams that are
# dropped in the middle.
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
export PYTHONDONTWRITEBYTECODE=1
unset DLAB_MODEL DLAB_API_KEY
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    exit 77
fi

fail() {
    echo "test_serve: $1" >&2
    exit 1
}

# refused PATTERN ARG...: exit 2 and one line.
refused() {
    local pattern=$1 code=0 out
    shift
    out=$("$DLAB" serve "$@" 2>&1) || code=$?
    [ "$code" = 2 ] || fail "serve $*: exit $code: $out"
    grep -qE "^dlab serve: .*$pattern" <<<"$out" || fail "serve $*: \"$out\" does not match /$pattern/"
    [ "$(wc -l <<<"$out")" = 1 ] || fail "serve $*: not one line: $out"
}
refused "port" -m synthetic:tiny --port 70000
refused "context holds 512" -m synthetic:tiny -c 100000
refused "batch.interval_ms" -m synthetic:tiny --set batch.interval_ms=5
refused "batch.release: at_end" -m synthetic:tiny --set batch.mode=static --set batch.release=at_end
refused "-c 200: .* 177 tokens" -m synthetic:tiny -c 200 --set "kv.pool=11 blocks"
refused "no-such-file" -m synthetic:tiny --api-key-file /no-such-file
empty=$(mktemp)
trap 'rm -f "$empty"' EXIT
refused "holds no key" -m synthetic:tiny --api-key-file "$empty"
refused "host" -m synthetic:tiny --host no.such.host.invalid

python3 "$here/serve_http.py"
python3 "$here/serve_drop.py"
