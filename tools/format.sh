#!/usr/bin/env bash
# clang-format in place, on every C file of the repository.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools/deps.sh lint
mapfile -d '' sources < <(list_files '*.c' '*.h')
[ "${#sources[@]}" -gt 0 ] || die "git lists no files here"
clang-format -i "${sources[@]}"
