#!/usr/bin/env bash
# Makes build/venv, the only place where Python packages of ours go: tools/venv.sh [PACKAGE-LIST.txt]
# Prints the path of its python. Exit 3: the list's packages cannot be had (no network); the environment itself is there.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

list=${1:+$(realpath "$1")}
venv=$root/build/venv
python=$venv/bin/python
# A virtual environment knows its own path: one that was moved or lost its python is made anew.
if ! "$python" -m pip --version >/dev/null 2>&1 || [ "$("$python" -c 'import sys; print(sys.prefix)')" != "$venv" ]; then
    rm -rf "$venv"
    mkdir -p "$root/build"
    python3 -m venv "$venv" >&2 || die "python3 -m venv failed; tools/deps.sh demo installs what it needs"
fi

if [ -n "$list" ] && ! cmp -s "$list" "$venv/installed-$(basename "$list")"; then
    if ! "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 -r "$list" >&2; then
        say "venv.sh: the packages of $list could not be installed"
        exit 3
    fi
    cp "$list" "$venv/installed-$(basename "$list")"
fi
printf '%s\n' "$python"
