#!/usr/bin/env bash
# The tests under a sanitizer: tools/sanitize.sh asan|tsan
# asan (with undefined behaviour): all but the comparisons of long texts, which check figures and take too long here.
# tsan: base, kernels, engine and the server's host, where the threads are. The shim has none, and the long walks over stores and strategies,
# which take most of an hour here, put the same team to the same work as the tests that remain.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:-}
case $preset in
asan) select=(--exclude-regex 'cli/test_(kv_quality|exact_ppl|exact_greedy|readme|fetch_model|includes|serve_model)') ;;
tsan) select=(--tests-regex '^(base|kernels|engine)/|^harness/test_serve_host$' --exclude-regex 'engine/test_(kv_content|kv_exact|exact|swap|swap_walk)$') ;;
*) die "which sanitizer? asan or tsan" ;;
esac

tools/deps.sh test
tools/build.sh "$preset"
export CK_TIMEOUT_MULTIPLIER=4 # instrumented code is slow, not stuck
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS:-}
# ThreadSanitizer needs its shadow memory at fixed addresses, which some kernels' address randomisation takes.
fixed=()
[ "$preset" != tsan ] || ! setarch "$(uname -m)" -R true 2>/dev/null || fixed=(setarch "$(uname -m)" -R)
"${fixed[@]}" ctest --test-dir "build/$preset" --output-on-failure --parallel "${TEST_JOBS:-2}" "${select[@]}" 2>&1
