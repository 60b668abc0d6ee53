#!/usr/bin/env bash
# Line coverage of the tests: a summary by file, and pages at build/cov/html/index.html.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools/deps.sh test
python=$(tools/venv.sh tools/requirements-cov.txt) || die "gcovr cannot be had without a network" 3
tools/build.sh cov
find build/cov -name '*.gcda' -delete
status=0
ctest --test-dir build/cov --output-on-failure --parallel "${TEST_JOBS:-2}" >build/cov/ctest.log 2>&1 || status=$?
mkdir -p build/cov/html
"$python" -m gcovr --root . --object-directory build/cov --exclude tests --exclude build --html-details build/cov/html/index.html \
    --txt - --gcov-ignore-parse-errors=negative_hits.warn
[ "$status" = 0 ] || { tail -n 30 build/cov/ctest.log && die "tests failed; build/cov/ctest.log has their output" 1; }
