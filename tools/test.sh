#!/usr/bin/env bash
# Builds and runs every test; the output ends with ctest's closing lines. What needs a network is skipped by name without
# one; DLAB_REQUIRE_MODEL=1 makes a missing model a failure.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools/deps.sh test

# The checks that read records with h5py ask for this interpreter; without its packages they skip.
if python=$(tools/venv.sh tools/requirements.txt); then
    export DLAB_PYTHON=$python
else
    say "no Python packages: the checks that read our files with h5py will be skipped."
fi

# Those that let other people's clients talk to our server ask for this one.
if python=$(tools/venv.sh tools/requirements-clients.txt); then
    export DLAB_CLIENTS=$python
else
    say "no Python packages: the openai and locust clients will be skipped."
fi

if [ -z "${DLAB_MODEL:-}" ]; then
    status=0
    model=$(tools/fetch_model.sh) || status=$?
    if [ "$status" = 0 ]; then
        export DLAB_MODEL=$model
    elif [ "${DLAB_REQUIRE_MODEL:-0}" = 1 ]; then
        die "DLAB_REQUIRE_MODEL=1, but there is no model" "$status"
    else
        say "no model: the tests that need it will be skipped."
    fi
fi

tools/build.sh release
build/release/tests/shim/shim_run # which instruction sets run natively, which through the shim
ctest --test-dir build/release --output-on-failure --parallel "${TEST_JOBS:-2}" 2>&1
