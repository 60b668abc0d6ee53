#!/usr/bin/env bash
# From a fresh clone to a measured table: installs what is missing, fetches the model, builds, runs the quickstart.
# Without a network it goes on with random weights and says so.
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

started=$SECONDS
tools/deps.sh demo

status=0
model=$(tools/fetch_model.sh) || status=$?
case $status in
0) ;;
130) exit 130 ;;
3)
    model=synthetic:smollm2-135m
    notice="NOTICE: these figures come from $model: random weights in the model's shapes. Speed and memory are
real; quality figures (perplexity) mean nothing. With a network, run \`make demo\` again for the real model."
    say "$notice"
    ;;
*) die "the model cannot be put anywhere (see above)" "$status" ;;
esac

tools/build.sh release dlab
prepared=$SECONDS
DLAB_MODEL=$model build/release/dlab run experiments/quickstart.yaml -o quickstart.h5 --force
[ -z "${notice:-}" ] || printf '\n%s\n' "$notice"
say "prepared in $((prepared - started)) s, measured in $((SECONDS - prepared)) s"
