#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (60) and at least 100 000 executions, from the inputs in tests/fuzz/corpus.
# A finding is left in build/fuzz/findings and fails. FUZZ_KEEP=1 adds the inputs that reached new code to the kept ones.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seconds=${FUZZ_SECONDS:-60}
least=${FUZZ_RUNS:-100000}

tools/deps.sh fuzz
mapfile -t targets < <(find tests/fuzz -maxdepth 1 -name 'fuzz_*.c' -exec basename {} .c \; | sort)
[ "${#targets[@]}" -gt 0 ] || die "no targets in tests/fuzz"
tools/build.sh fuzz "${targets[@]}"
mkdir -p build/fuzz/findings

# fuzz TARGET FLAGS...: prints the number of executions
fuzz() {
    local target=$1 log=build/fuzz/$1.log
    shift
    if ! "build/fuzz/tests/$target" -print_final_stats=1 -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="build/fuzz/findings/$target-" "$@" "build/fuzz/corpus/$target" "tests/fuzz/corpus/${target#fuzz_}" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        die "$target: a finding, kept as build/fuzz/findings/$target-*. Mend it and add the input to tests/fuzz/corpus/${target#fuzz_}" 1
    fi
    awk '/stat::number_of_executed_units/ { print $2 }' "$log"
}

for target in "${targets[@]}"; do
    mkdir -p "build/fuzz/corpus/$target"
    runs=$(fuzz "$target" "-max_total_time=$seconds")
    if [ "$runs" -lt "$least" ]; then
        more=$(fuzz "$target" "-runs=$((least - runs))")
        runs=$((runs + more))
    fi
    printf '%-20s %9d executions, no finding\n' "$target" "$runs"
    if [ "${FUZZ_KEEP:-0}" = 1 ]; then
        "build/fuzz/tests/$target" -merge=1 "tests/fuzz/corpus/${target#fuzz_}" "build/fuzz/corpus/$target" >"build/fuzz/$target.merge.log" 2>&1
    fi
done
