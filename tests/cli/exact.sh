# shellcheck shell=bash
# Shared by test_exact_*.sh: reads JSON and compares numbers with awk alone, so that these tests run everywhere.

# With these, what is computed is held to the oracle; other settings round more.
# shellcheck disable=SC2034 # used by the tests that source this
exact=(--set compute=f32 --set kv.k=f32 --set kv.v=f32)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "$(basename "$0" .sh): $1" >&2
    exit 1
}

# json FILE PREFIX: the values whose path is PREFIX or lies under it, one a line, in the file's order.
json() {
    awk -f "$(dirname "${BASH_SOURCE[0]}")/json.awk" "$1" |
        awk -F '\t' -v prefix="$2" 'prefix == "" || $1 == prefix || index($1, prefix ".") == 1 { print $2 }'
}

# close_enough WHAT absolute|relative TOLERANCE WANT GOT: two files of numbers; the same count, at least one, each within.
close_enough() {
    local what=$1 kind=$2 limit=$3 want=$4 got=$5 n_want n_got
    n_want=$(wc -l <"$want")
    n_got=$(wc -l <"$got")
    [ "$n_want" -gt 0 ] || fail "$what: the fixture holds no numbers"
    [ "$n_want" = "$n_got" ] || fail "$what: $n_got numbers, expected $n_want"
    paste "$want" "$got" | awk -v what="$what" -v kind="$kind" -v limit="$limit" '
        $1 !~ /^-?[0-9]/ || $2 !~ /^-?[0-9]/ { bad = NR; exit }
        {
            off = $1 - $2; if (off < 0) off = -off
            if (kind == "relative") off /= $1 < 0 ? -$1 : $1
            if (off > worst) { worst = off; at = NR }
        }
        END {
            if (bad) { print what ": value " bad " is not a number" > "/dev/stderr"; exit 1 }
            printf "%s: %d values, worst %s difference %.2e (limit %.0e)\n", what, NR, kind, worst, limit
            if (worst > limit) { print what ": too far off at value " at > "/dev/stderr"; exit 1 }
        }' || exit 1
}

# same_until_close WHAT WANT GOT GAPS LIMIT: equal ids up to the first step where the oracle's two best logits are closer than
# LIMIT.
same_until_close() {
    local what=$1
    [ "$(wc -l <"$2")" -gt 0 ] || fail "$what: the fixture holds no ids"
    [ "$(wc -l <"$2")" = "$(wc -l <"$3")" ] || fail "$what: $(wc -l <"$3") ids, expected $(wc -l <"$2")"
    paste "$2" "$3" "$4" | awk -v what="$what" -v limit="$5" '
        $3 < limit { exit }
        $1 != $2 { print what ": id " NR " is " $2 ", expected " $1 > "/dev/stderr"; bad = 1; exit }
        { n = NR }
        END {
            if (bad) exit 1
            print what ": " n + 0 " ids agree"
            if (!n) { print what ": nothing could be compared" > "/dev/stderr"; exit 1 }
        }' || exit 1
}

# Sets $model to the file that the fixture's figures belong to, or ends the test as skipped.
find_model() {
    local fixture=$1 want
    model=${DLAB_MODEL:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/decodelab/SmolLM2-135M-Instruct.Q4_1.gguf}
    want=$(json "$fixture" model_sha256 | tr -d '"')
    if [ -f "$model" ] && [ "$(sha256sum <"$model" | cut -d' ' -f1)" = "$want" ]; then return; fi
    [ "${DLAB_REQUIRE_MODEL:-0}" != 1 ] || fail "the model is required, and $model is not it (tools/fetch_model.sh)"
    echo "skipped: $(basename "$0" .sh) needs the model that tools/fetch_model.sh brings; $model is not it"
    exit 77
}
