#!/usr/bin/env bash
# clang-format, clang-tidy, shellcheck, the one-way includes, links in Markdown. Prints each fault; exit 1 if there is any.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools/deps.sh lint
failed=()

# check NAME COMMAND...
check() {
    local name=$1
    shift
    printf '%-14s' "$name" >&2
    local log
    if log=$("$@" 2>&1); then
        say "clean"
    else
        say "FAULTS"
        printf '%s\n' "$log"
        failed+=("$name")
    fi
}

mapfile -d '' sources < <(list_files '*.c' '*.h')
mapfile -d '' scripts < <(list_files '*.sh' .ci/run)
mapfile -d '' pages < <(list_files '*.md')
# An unreadable repository lists nothing, and nothing has no faults.
[ "${#sources[@]}" -gt 0 ] || die "git lists no files here: nothing could be checked"

tidy() {
    tools/build.sh debug dlab_version_header || return 1
    # The flags are gcc's; clang need not know each of its warnings.
    run-clang-tidy -quiet -p build/debug -extra-arg=-Wno-unknown-warning-option -j "${JOBS:-$(nproc)}" "^$root/(base|kernels|engine|harness|results|plots)/.*\.c$" \
        >build/debug/tidy.log 2>&1 && return
    sed 's/\x1b\[[0-9;]*m//g' build/debug/tidy.log | grep -E '(warning|error|note):'
    return 1
}

# Relative links must lead to a file; what is in a code block or on the web is not followed.
links() {
    local page target bad=0
    for page in "${pages[@]}"; do
        while IFS= read -r target; do
            target=${target%%#*}
            case $target in '' | *://* | mailto:*) continue ;; esac
            [ -e "$(dirname "$page")/$target" ] || { echo "$page: dead link to $target"; bad=1; }
        done < <(awk '/^```/ { code = !code } !code' "$page" | grep -oE '\]\([^) ]+' | cut -c3-)
    done
    return "$bad"
}

check clang-format clang-format --dry-run -Werror "${sources[@]}"
check shellcheck shellcheck -x "${scripts[@]}"
check includes env DLAB_SOURCE="$root" bash tests/cli/test_includes.sh
check links links
check clang-tidy tidy
[ "${#failed[@]}" = 0 ] || die "faults found by: ${failed[*]}" 1
