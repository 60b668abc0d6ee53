#!/usr/bin/env bash
# The shim is right where that can be seen: kernels of the instruction sets that this CPU has give the same bits through
# the shim as natively. SHIM_BITS_NATIVE and SHIM_BITS are the two builds of shim_bits.c. But for rope: it has no intrinsics,
# and gcc 12 at -O3 fuses its products with its sums where the CPU can, -ffp-contract=off or not.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$SHIM_BITS_NATIVE" >"$scratch/native"
mapfile -t isas < <(cut -d ' ' -f 1 "$scratch/native" | uniq)
if [ "${#isas[@]}" = 0 ]; then
    echo "this CPU has no instruction set that the shim stands for: nothing to compare"
    exit 77
fi
DLAB_SHIM=all "$SHIM_BITS" >"$scratch/all"
for isa in "${isas[@]}"; do
    grep "^$isa " "$scratch/native" | grep -v "^$isa rope " >"$scratch/a"
    grep "^$isa " "$scratch/all" | grep -v "^$isa rope " >"$scratch/b"
    n=$(wc -l <"$scratch/a")
    [ "$n" -gt 100 ] || { echo "$isa: only $n cases were run" && exit 1; }
    diff "$scratch/a" "$scratch/b" || { echo "$isa: natively (<) and through the shim (>) the bits differ" && exit 1; }
    echo "$isa: the same bits natively and through the shim, $n cases"
done
