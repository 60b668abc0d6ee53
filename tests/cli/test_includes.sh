#!/usr/bin/env bash
# Includes point one way only: harness → engine → kernels → base and harness → plots → results → base. Of the engine,
# others see engine/engine.h alone, of the kernels the harness sees only what a device is. The rule is first shown to catch planted faults, then applied to the sources.
set -euo pipefail

# What a file of each folder may include, as folders or single headers.
may_include() {
    case $1 in
    base) echo "base/" ;;
    kernels) echo "kernels/ base/" ;;
    engine) echo "engine/ kernels/ base/" ;;
    results) echo "results/ base/" ;;
    plots) echo "plots/ results/ base/" ;;
    harness) echo "harness/ engine/engine.h plots/ results/ base/" ;;
    esac
}

# check_include FILE HEADER: is the arrow from FILE (a path from the top) to HEADER allowed?
check_include() {
    local allowed
    case $2 in
    *..*) return 1 ;;
    base/* | kernels/* | engine/* | results/* | plots/* | harness/*)
        for allowed in $(may_include "${1%%/*}"); do
            case $2 in "$allowed" | "${allowed%/}"/*) return 0 ;; esac
        done
        return 1
        ;;
    esac
    return 0 # a header of the system, of a library, generated, or in the file's own folder
}

# Prints every forbidden include under TOP; silent when there is none.
check_tree() {
    local file line header
    cd "$1"
    while IFS=: read -r file line header; do
        header=$(sed -E 's/^[^"<]*["<]([^">]*)[">].*/\1/' <<<"$header")
        check_include "$file" "$header" || echo "$file:$line: must not include $header"
    done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' --include='*.[chS]' --include='*.cu' \
        --include='*.cuh' base kernels engine results plots harness)
}

fail() {
    echo "test_includes: $1" >&2
    exit 1
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree="$scratch/a house"

plant() { # FILE LINE: a clean house with one more line in FILE
    rm -rf "$tree"
    mkdir -p "$tree"/{base,kernels/cpu,engine/kv,results,plots,harness/cmd}
    echo '#include <stdio.h>' >"$tree/base/mem.c"
    echo '#include "base/mem.h"' >"$tree/kernels/cpu/matmul.c"
    echo '#include "kernels/device.h"' >"$tree/engine/kv/store.c"
    echo '#include "base/json.h"' >"$tree/results/record.c"
    echo '#include "results/record.h"' >"$tree/plots/plot.c"
    printf '#include "engine/engine.h"\n#include "dlab_version.h"\n' >"$tree/harness/cmd/run.c"
    echo "$2" >>"$tree/$1"
}
must_catch() {
    plant "$1" "$2"
    local said
    said=$(check_tree "$tree")
    [[ $said == "$1:"* ]] || fail "did not catch '$2' in $1 (said: '$said')"
}

plant base/mem.c ''
clean=$(check_tree "$tree")
[ -z "$clean" ] || fail "found a fault in a clean house: $clean"
must_catch base/mem.c '#include "kernels/op.h"'
must_catch base/mem.c '  #  include <results/run.h>'
must_catch kernels/cpu/matmul.c '#include "engine/engine.h"'
must_catch engine/kv/store.c '#include "harness/spec/spec.h"'
must_catch engine/kv/store.c '#include "results/run.h"'
must_catch results/record.c '#include "engine/engine.h"'
must_catch results/record.c '#include "plots/plot.h"'
must_catch plots/plot.c '#include "engine/engine.h"'
must_catch plots/plot.c '#include "harness/run/run.h"'
must_catch harness/cmd/run.c '#include "engine/plan.h"'
must_catch harness/cmd/run.c '#include "kernels/cpu/cpu.h"'
must_catch harness/cmd/run.c '#include "../../engine/plan.h"'

faults=$(check_tree "$DLAB_SOURCE")
[ -z "$faults" ] || fail "arrows that point the wrong way (DESIGN: harness → engine → kernels → base, harness → plots → results → base):
$faults"
seen=$(grep -rlE '^#include "base/' "$DLAB_SOURCE/harness" | wc -l)
[ "$seen" -gt 0 ] || fail "no sources found under $DLAB_SOURCE: nothing was checked"
echo "includes point one way"
