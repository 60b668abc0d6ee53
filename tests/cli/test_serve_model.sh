#!/usr/bin/env bash
# dlab serve with the real model: greedy answers are dlab generate's, chat follows the model's own template, and other people's
# clients work. DLAB_CLIENTS names a Python that has the packages of tools/requirements-clients.txt.
set -euo pipefail
# shellcheck source=tests/cli/exact.sh
source "$(dirname "${BASH_SOURCE[0]}")/exact.sh"

here=$(dirname "${BASH_SOURCE[0]}")
export PYTHONDONTWRITEBYTECODE=1
unset DLAB_API_KEY
find_model "$DLAB_FIXTURES/corpus_nll.json"
python3 "$here/serve_model.py" "$model"

if [ -z "${DLAB_CLIENTS:-}" ]; then
    [ "${DLAB_REQUIRE_MODEL:-0}" != 1 ] || fail "the clients are required (tools/venv.sh tools/requirements-clients.txt), and DLAB_CLIENTS is not set"
    echo "skipped: the openai and locust clients, since DLAB_CLIENTS is not set; it should name a Python that has them"
    exit 77
fi
PYTHONPATH=$here "$DLAB_CLIENTS" "$here/serve_openai.py" "$model"

"$DLAB" serve -m "$model" --port 0 -c 256 --batch 8 2>"$scratch/serve.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
until grep -q "listening on" "$scratch/serve.log"; do
    kill -0 "$server" 2>/dev/null || fail "the server ended: $(cat "$scratch/serve.log")"
    sleep 0.05
done
url=$(sed -n 's/^listening on //p' "$scratch/serve.log")
"$DLAB_CLIENTS" -m locust -f "$here/serve_locust.py" --headless --users 8 --spawn-rate 8 --run-time 5s --stop-timeout 30 \
    --host "$url" --only-summary --json >"$scratch/locust.json" 2>"$scratch/locust.log" ||
    fail "locust: $(cat "$scratch/locust.log")"
answered=$(grep -oE '"num_requests": *[0-9]+' "$scratch/locust.json" | awk -F : '{ n += $2 } END { print n + 0 }')
[ "$answered" -gt 10 ] || fail "locust was answered $answered times: $(cat "$scratch/locust.log")"
if grep -qE '"num_failures": *[1-9]' "$scratch/locust.json"; then fail "locust: failures: $(cat "$scratch/locust.json")"; fi
kill -TERM "$server"
wait "$server" || fail "the server: exit $?: $(cat "$scratch/serve.log")"
echo "locust: $answered requests, none failed"
