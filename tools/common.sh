# shellcheck shell=bash
# Sourced by the scripts of this folder: goes to the repository's top and names what they share.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root" || exit 2

# shellcheck disable=SC2034 # used by the scripts that source this
MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf

# For people, on stderr: stdout is kept for results.
say() { printf '%s\n' "$*" >&2; }
die() {
    say "$(basename "$0"): $1"
    exit "${2:-2}"
}

# Every script file of the repository, NUL-separated: committed or new, never what a build left.
list_files() { git ls-files -z --cached --others --exclude-standard -- "$@"; }
