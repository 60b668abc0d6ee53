#!/usr/bin/env bash
# Installs what a task needs and this machine lacks, with apt: tools/deps.sh [build|demo|test|peer|lint|fuzz]
# DLAB_NO_APT=1 installs nothing: it says what is missing and the line to run, and exits 2. Silent when all is there.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# package | how to tell that it is there (command, pc = pkg-config module, or shell test) | why
build="
gcc             | command gcc           | compiles decodelab
libc6-dev       | header stdio.h        | the C library's headers
make            | command make          | runs the tasks
cmake           | command cmake         | configures the build
ninja-build     | command ninja         | runs the build
pkg-config      | command pkg-config    | finds the libraries
git             | command git           | stamps records with the revision
libyaml-dev     | pc yaml-0.1           | reads experiment files
libjansson-dev  | pc jansson            | reads and writes JSON
libpcre2-dev    | pc libpcre2-8         | splits text for tokenizers
libutf8proc-dev | pc libutf8proc        | normalises Unicode
libxxhash-dev   | pc libxxhash          | keys of runs and blocks
libhdf5-dev     | pc hdf5               | writes records
libmicrohttpd-dev    | pc libmicrohttpd | serves over HTTP
libcurl4-openssl-dev | pc libcurl       | asks servers over HTTP
check           | pc check              | the frame of the C tests
"
demo="
gnuplot-nox     | command gnuplot       | draws the plots
python3         | command python3       | fetches the model
python3-venv    | venv                  | keeps Python packages in build/venv
"
peer="
g++             | command g++           | compiles the peer, llama.cpp
"
lint="
clang-format    | command clang-format   | checks the layout of the code
clang-tidy      | command run-clang-tidy | looks for mistakes in the code
shellcheck      | command shellcheck     | looks for mistakes in the scripts
clang           | command clang          | a second compiler's warnings
"
fuzz="
clang               | command clang      | builds the fuzz targets
libclang-rt-14-dev  | fuzzer             | libFuzzer and the sanitizers
"

case ${1:-build} in
build) wanted=$build ;;
demo | test) wanted=$build$demo ;;
peer) wanted=$build$demo$peer ;;
lint) wanted=$build$lint ;;
fuzz) wanted=$build$fuzz ;;
*) die "unknown group \"$1\"; expected build, demo, test, peer, lint or fuzz" ;;
esac

has_header() { printf '#include <%s>\n' "$1" | gcc -E -x c - >/dev/null 2>&1; }
has_fuzzer() {
    local dir status=0
    dir=$(mktemp -d)
    printf 'int LLVMFuzzerTestOneInput(const char *d, long n);\nint LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }\n' |
        clang -fsanitize=fuzzer,address,undefined -x c - -o "$dir/probe" >/dev/null 2>&1 || status=1
    rm -rf "$dir"
    return "$status"
}

present() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
    pc) command -v pkg-config >/dev/null && pkg-config --exists "$2" ;;
    header) has_header "$2" ;;
    venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    fuzzer) has_fuzzer ;;
    esac
}

missing=()
find_missing() {
    local package how why kind what
    missing=()
    reasons=""
    while IFS='|' read -r package how why; do
        package=${package// /}
        [ -n "$package" ] || continue
        read -r kind what <<<"$how"
        present "$kind" "$what" && continue
        missing+=("$package")
        reasons+=$(printf '  %-20s%s' "$package" "$why")$'\n'
    done <<<"$wanted"
}

find_missing
[ "${#missing[@]}" -gt 0 ] || exit 0
say "Missing on this machine:"
printf '%s' "$reasons" >&2

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
line="${as_root[*]}${as_root[*]:+ }apt-get install -y --no-install-recommends ${missing[*]}"
if [ "${DLAB_NO_APT:-0}" = 1 ]; then
    die "nothing was installed (DLAB_NO_APT=1). Run: $line"
fi
command -v apt-get >/dev/null || die "no apt-get here; install what these Debian packages hold, then run again: ${missing[*]}"
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    die "not root and no sudo here; as root run: ${line#sudo }"
fi

say "Installing: $line"
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >&2; }
install() { apt install -y --no-install-recommends "${missing[@]}"; }
# A fresh machine has no package lists, an old one has stale lists: refresh them only when they do not serve.
if ! apt install -y --no-install-recommends --simulate "${missing[@]}" >/dev/null 2>&1; then
    apt update || die "apt-get update failed; is there a network? The line to run later: $line"
fi
if ! install && ! { apt update && install; }; then
    die "apt-get could not install; run it by hand to see why: $line"
fi
find_missing
[ "${#missing[@]}" = 0 ] || die "still missing after the installation: ${missing[*]}"
