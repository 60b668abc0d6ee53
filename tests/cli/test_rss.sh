#!/usr/bin/env bash
# Memory of a process, on the real model: what is resident is what the pools say, within 10 %, and what any process of this
# program takes (libraries, tables of the tokenizer): OVERHEAD. The model's file is not held beside the packed weights.
set -euo pipefail

# shellcheck source=tests/cli/exact.sh
source "$(dirname "$0")/exact.sh"
find_model "$DLAB_FIXTURES/corpus_nll.json"
if grep -qa '__[at]san_init' "$DLAB"; then
    echo "skipped: test_rss: sanitizers have memory of their own"
    exit 77
fi
OVERHEAD=$((16 << 20))
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache"

cat >x.yaml <<YAML
name: rss
model: $model
plan: {threads: 2, weights.packed: [memory, file]}
workload: {prompt: 256, output: 4, depth: [0, 2048]}
measure: {repeats: 1, warmup: 0}
report: {metrics: [rss_peak]}
YAML
"$DLAB" run x.yaml -q -o x.h5 >out 2>err || fail "run: $(cat out err)"
"$DLAB" export x.h5 --format csv >x.csv
awk -F, -v overhead="$OVERHEAD" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
        rss = $at["rss_peak_B"]; weights = $at["mem_weights_B"]
        pools = weights + $at["mem_kv_B"] + $at["mem_act_B"]
        printf "resident %.1f MiB, weights, KV and activations %.1f MiB: %.3f\n", rss / 2^20, pools / 2^20, rss / pools
        if (weights < 90e6 || rss < weights) { print "test_rss: not the figures of this model" > "/dev/stderr"; bad = 1 }
        if (rss > 1.1 * pools + overhead) { print "test_rss: more than 10 % beyond the pools" > "/dev/stderr"; bad = 1 }
        n++
    }
    END { if (n != 4) { print "test_rss: " n " points, expected 4" > "/dev/stderr"; bad = 1 }; exit bad }' x.csv

# ---- while it loads, too: packing into memory, making the file, using it ----
if [ ! -x /usr/bin/time ]; then
    echo "not measured: memory while loading (no /usr/bin/time)"
    exit 0
fi
weights=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "mem_weights_B") at = i } NR == 2 { print $at }' x.csv)
load() { # what it is called, weights.packed
    /usr/bin/time -f %M -o peak "$DLAB" generate -m "$model" -p "Once upon a time" -n 1 --set weights.packed="$2" -o json >made.json
    awk -v what="$1" -v weights="$weights" -v overhead="$OVERHEAD" '{
        printf "%s: at most %.1f MiB while loading, weights %.1f MiB\n", what, $1 / 2^10, weights / 2^20
        if ($1 * 2^10 > 1.1 * weights + overhead) { print "test_rss: the model is held twice" > "/dev/stderr"; exit 1 }
    }' peak
}
load "in memory" memory
rm -r "$XDG_CACHE_HOME"
load "making the file" file
made=$(stat -c %i "$XDG_CACHE_HOME"/decodelab/packed/*.weights) || fail "no file was made"
load "using the file" file
[ "$(stat -c %i "$XDG_CACHE_HOME"/decodelab/packed/*.weights)" = "$made" ] || fail "the file was made again"
