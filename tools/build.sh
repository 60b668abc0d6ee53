#!/usr/bin/env bash
# Configures and builds a CMake preset: tools/build.sh PRESET [TARGET...]
# JOBS compilers at once (default: the machine's cores); DLAB_WERROR=1 turns warnings into errors.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# -ge 1 ] || die "which preset? cmake --list-presets has them"
preset=$1
shift
options=()
[ -z "${DLAB_WERROR:-}" ] || options+=("-DDLAB_WERROR=$DLAB_WERROR")

# A tree that was moved or copied cannot go on with what CMake wrote down elsewhere.
cache=build/$preset/CMakeCache.txt
if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
    say "build/$preset was made in another folder: starting it afresh"
    rm -rf "build/$preset"
fi
mkdir -p "build/$preset"
log=build/$preset/configure.log
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    die "cmake --preset $preset failed; its output is above and in $log"
fi
# The compiler's messages are for people: stdout belongs to whoever calls this.
cmake --build "build/$preset" --parallel "${JOBS:-$(nproc)}" ${1:+--target "$@"} >&2
