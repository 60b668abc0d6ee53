#!/usr/bin/env bash
# dlab load against a server that misbehaves as it is told, against nothing, and against the engine: what comes of requests,
# what is counted, what the exit code says.
set -uo pipefail

command -v python3 >/dev/null || { echo "skipped: no python3" >&2; exit 77; }
scratch=$(mktemp -d)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset DLAB_MODEL DLAB_API_KEY http_proxy HTTP_PROXY all_proxy ALL_PROXY

fail() {
    echo "FAIL: $*" >&2
    [ ! -f err ] || cat err >&2
    [ ! -f out ] || cat out >&2
    exit 1
}
# load CODE ARG...: the exit code, with the table as CSV in `out`
load() {
    local want=$1 code=0
    shift
    timeout 120 "$DLAB" load "$@" -o csv >out 2>err || code=$?
    [ "$code" = "$want" ] || fail "dlab load $*: exit $code, expected $want"
}
# column NAME [ROW]: of the table; empty: missing
column() {
    awk -F, -v name="$1" -v row="${2:-1}" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ "^" name "(_ns|_us|_ms)?$") at = i }
        NR == row + 1 { if (!at) exit 1; print $at; found = 1 } END { exit !found }' out || fail "no column $1"
}
is() { # NAME VALUE [ROW]
    local got
    got=$(column "$1" "${3:-1}")
    [ "$got" = "$2" ] || fail "$1 is \"$got\", expected \"$2\""
}
says() { grep -qE -- "$1" err || fail "no \"$1\" on standard error"; }
refused() { # PATTERN ARG...
    local pattern=$1
    shift
    load 2 "$@"
    [ "$(wc -l <err)" = 1 ] || fail "dlab load $*: not one line"
    [ ! -s out ] || fail "dlab load $*: printed something"
    says "$pattern"
}

python3 "$here/fake_openai.py" port log &
server=$!
for _ in $(seq 200); do [ -s port ] && break; sleep 0.05; done
[ -s port ] || fail "the server does not start"
url=http://127.0.0.1:$(cat port)
few=(--requests 6 --concurrency 3 --warmup 0 --input-len 5 --output-len 8)

# ---- what is counted
for model in each split usage,first=5 unstopped eos; do
    load 0 "$url" "${few[@]}" --model-name "$model" --record "$model.h5"
    is failed 0
    is status ok
    "$DLAB" show "$model.h5" --point 1 -o json >point || fail "show"
    python3 - "$model" <<'PY' || fail "$model: the record"
import json, sys
p = json.load(open("point"))
assert p["effective"]["target.model"] == sys.argv[1], p["effective"]
assert not any(k.startswith(("kv.", "batch.")) for k in p["effective"]), "settings of an engine that is not ours"
PY
done

# a token of a chunk each: seven gaps a request; two a chunk and no tokenizer: only the ends; with one: eight again
expect_rows() { # FILE.h5 "ROWS TOKENS PROMPT": tokens with a time, tokens produced, tokens of the prompts
    "$DLAB" export "$1" --table tokens >tokens.csv || fail "export of $1"
    "$DLAB" export "$1" --table requests >requests.csv || fail "export of $1"
    python3 - "$1" "$2" <<'PY' || fail "the events of $1"
import csv, sys
tokens, requests = list(csv.DictReader(open("tokens.csv"))), list(csv.DictReader(open("requests.csv")))
got = f"{len(tokens)} {sum(int(r['new_tokens']) for r in requests)} {sum(int(r['prompt_tokens']) for r in requests)}"
assert got == sys.argv[2], f"{sys.argv[1]}: tokens with a time, tokens, prompt tokens are {got}, expected {sys.argv[2]}"
PY
}
expect_rows each.h5 "48 48 30"
expect_rows eos.h5 "48 48 30"
load 0 "$url" "${few[@]}" --model-name pair --record pair.h5
expect_rows pair.h5 "12 48 30"
[ -n "$(column tpot_p50)" ] || fail "two tokens with a time have a tpot"
load 0 "$url" "${few[@]}" --model-name pair,silent
[ -z "$(column out_tps)" ] || fail "tokens that nobody counted have a rate"
[ -n "$(column ttft_p50)" ] || fail "the first chunk has a time"
load 0 "$url" "${few[@]}" --model-name short --record short.h5
"$DLAB" show short.h5 | grep -q '6 answers are shorter than asked' || fail "short answers are not told of"

# an empty answer is one: served, of no tokens, with no first one; with usage, or a tokenizer to count
for model in hollow=1 hollow=2 hollow=1,silent hollow=2,silent; do
    load 0 "$url" "${few[@]}" --model-name "$model" -m synthetic:tiny --record hollow.h5 --force
    is status ok
    is failed 0
    "$DLAB" export hollow.h5 --table requests >requests.csv || fail "export"
    python3 - "$model" <<'PY' || fail "$model: the requests"
import csv, math, sys
rows = list(csv.DictReader(open("requests.csv")))
made = [int(r["new_tokens"]) for r in rows]
assert len(made) == 6 and min(made) == 0, made
assert made.count(0) == (6 if "=1" in sys.argv[1] else 3), made
assert all((r["t_first_ns"] in ("", "nan")) == (n == 0) for r, n in zip(rows, made)), rows
PY
    "$DLAB" show hollow.h5 | grep -q 'without usage' && fail "$model: an empty answer is said to be uncounted"
done
load 0 "$url" "${few[@]}" --model-name hollow=1
[ -z "$(column ttft_p50)" ] || fail "nothing came, and has a first token"

# ---- the tokenizer of the model served: a byte is a token, so that a chunk of four bytes has four
load 0 "$url" "${few[@]}" --model-name pair,silent -m synthetic:tiny --record bytes.h5
expect_rows bytes.h5 "96 96 30"
load 0 "$url" "${few[@]}" --model-name each --endpoint chat -m synthetic:tiny
is failed 0
load 0 "$url" "${few[@]}" --model-name each --prompt-as text -m synthetic:tiny --api-key secret --extra-body '{"best_of": 1}' --record key.h5
python3 - <<'PY' || fail "what was sent"
import json
log = [json.loads(line) for line in open("log")]
first, chat, text = log[0], [x for x in log if "chat" in x["path"]][0], log[-1]
assert first["body"]["prompt"] and all(isinstance(i, int) for i in first["body"]["prompt"]), first
assert len(first["body"]["prompt"]) == 5 and first["body"]["max_tokens"] == 8, first
assert first["body"]["ignore_eos"] is True, first
assert first["body"]["stream"] is True and first["body"]["stream_options"]["include_usage"] is True, first
assert first["auth"] is None
assert chat["body"]["messages"][0]["role"] == "user" and chat["path"] == "/v1/chat/completions", chat
assert isinstance(text["body"]["prompt"], str) and text["body"]["best_of"] == 1, text
assert text["auth"] == "Bearer secret", text
ids = [tuple(x["body"]["prompt"]) for x in log if isinstance(x["body"].get("prompt"), list)]
assert len(set(ids[:6])) == 6, "prompts of a run"
PY
grep -aq secret key.h5 && fail "the key is in the record"

# extra members have the last word; a password in the URL is sent, and kept nowhere
load 0 "${url/127/user:p%61ss@127}" "${few[@]}" --extra-body '{"max_tokens": 3}' --record login.h5
python3 - <<'PY' || fail "what was sent with extra members and a login"
import base64, json
last = [json.loads(line) for line in open("log")][-1]
assert last["body"]["max_tokens"] == 3, last
assert last["auth"] == "Basic " + base64.b64encode(b"user:pass").decode(), last
PY
"$DLAB" show login.h5 --point 1 | grep -q "http://127" || fail "the record does not name the server"
grep -aqE 'p%61ss|user:' login.h5 && fail "the password is in the record"

# a server's cache cannot be emptied: no two runs send the same prompt, but all of them the same lengths
expect_distinct() { # N DISTINCT: of the last N prompts
    python3 - "$1" "$2" <<'PY' || fail "prompts that were sent twice"
import json, sys
n, want = int(sys.argv[1]), int(sys.argv[2])
ids = [tuple(json.loads(line)["body"]["prompt"]) for line in open("log") if '"prompt"' in line][-n:]
assert len(set(ids)) == want, f"{len(set(ids))} of {n} prompts are distinct, expected {want}"
PY
}
load 0 "$url" "${few[@]}" --repeats 3 --warmup 1
expect_distinct 21 21 # three at once warm it up
load 0 "$url" --concurrency 1 --requests 6 --warmup 0 --repeats 2 --seed 0 --input-len uniform:1,400 --output-len 2
python3 - <<'PY' || fail "lengths of seed 0"
import json
n = [len(json.loads(line)["body"]["prompt"]) for line in open("log") if '"prompt"' in line][-12:]
assert n[:6] == n[6:] and len(set(n)) > 1, n
PY
# those of a file go on where the run before ended; where it has no more, that is told
python3 -c 'import json; [print(json.dumps({"prompt": f"this is line {i}"})) for i in range(20)]' >lines.jsonl
told=(--prompts jsonl:lines.jsonl -m synthetic:tiny --output-len 2 --requests 4 --warmup 0 --repeats 2)
load 0 "$url" "${told[@]}" --concurrency 1,2 --record lines.h5
expect_distinct 16 16
"$DLAB" show lines.h5 | grep -q 'went to the server before' && fail "prompts that are new are said to be known"
load 0 "$url" "${told[@]}" --concurrency 1,2,3 --record lines.h5 --force
expect_distinct 24 20
"$DLAB" show lines.h5 --point 3 | grep -q '4 of the prompts went to the server before: lines.jsonl has no more' || fail "known prompts are not told of"
load 0 "$url" "${told[@]}" --concurrency 2 --set measure.keep_cache=true --record lines.h5 --force
expect_distinct 8 4
"$DLAB" show lines.h5 | grep -q 'went to the server before' && fail "the same prompts were asked for"

# several answers to a prompt are requests of their own
load 0 "$url" "${few[@]}" --set workload.samples=2 --record samples.h5
is failed 0
expect_rows samples.h5 "96 96 60"
expect_distinct 12 6

# a server's count is its word: it takes no memory, and more than was asked for is told of
load 0 "$url" "${few[@]}" --model-name count=2000000 -m synthetic:tiny --record count.h5
is failed 0
"$DLAB" show count.h5 | grep -q '6 answers are longer than asked' || fail "a count beyond what was asked is not told of"
"$DLAB" export count.h5 --table tokens >tokens.csv || fail "export"
[ "$(wc -l <tokens.csv)" -lt 200 ] || fail "$(wc -l <tokens.csv) rows for 96 bytes of text"

# [DONE] is the end, whatever becomes of the connection: nobody waits for the hour
load 0 "$url" "${few[@]}" --model-name linger=3600000
is failed 0

# ---- what fails, fails as a request: the run goes on
fails() { # MODEL PATTERN [ARG...]
    local model=$1 pattern=$2
    shift 2
    load 1 "$url" "${few[@]}" --model-name "$model" --record "fail.h5" --force "$@"
    is failed 6
    is status ok
    says "$pattern"
    "$DLAB" show fail.h5 | grep -q "6 of 6 requests failed" || fail "$model: the record does not tell"
}
fails status=500 'status 500: .*told to'
"$DLAB" show fail.h5 | grep -q -- '--prompt-as text -m MODEL' || fail "no way out of refused prompts of ids"
fails status=429 'status 429'
fails midway 'the connection broke'
fails garbage 'a broken stream: .*no JSON'
fails error 'out of blocks'
fails bare 'ended without \[DONE\] or a finish_reason'
fails reason=abort 'the server broke off: finish_reason "abort"'
fails never 'no end within 0.2 s \(--timeout\)' --timeout 200ms
fails never 'nothing came within 0.2 s \(--idle-timeout\)' --idle-timeout 200ms
fails status=500,unique 'status 500: .*told to'
[ "$(grep -c 'a request failed' err)" = 3 ] || fail "not three of six reasons are told"
awk '/a request failed/ && length > 300 { exit 1 }' err || fail "a reason is as long as the server likes"
"$DLAB" show fail.h5 --point 1 -o json | python3 -c '
import json, sys
w = json.load(sys.stdin)["warnings"]
assert len(w) < 520 and "status 500" in w, w' || fail "the warning of many reasons"
fails stall 'silent for 0.2 s' --idle-timeout 200ms
load 1 http://127.0.0.1:1 "${few[@]}" --model-name x
is failed 6
says 'no connection to http://127.0.0.1:1/v1'
refused 'is the server running' http://127.0.0.1:1 "${few[@]}"
load 0 "$url" "${few[@]}" # its first model
is failed 0

# ---- hundreds at once, from one process and one thread: nothing is lost
load 0 "$url" --rate inf --requests 400 --warmup 0 --input-len 5 --output-len 6 --model-name slow=20 --record many.h5
is failed 0
expect_rows many.h5 "2400 2400 2000"

# ---- the harness alone: ten a second, half a second each, one at a time: the last of eight waits for all before it
load 0 null:service=500ms --set workload.arrivals=constant --rate 10 --requests 8 --warmup 0 --set batch.size=1
awk -v e="$(column e2e_p99)" 'BEGIN { exit !(e > 3200 && e < 3600) }' || fail "e2e p99 is $(column e2e_p99), expected about 3272 ms"
load 0 null: --rate 2000 --requests 2000 --warmup 0
is failed 0

# ---- a load curve on the engine; a search; interruption
load 0 engine -m synthetic:tiny --concurrency 1-4*2 --requests 8 --set batch.size=4 --warmup 0 --input-len uniform:4,9 --output-len 6 --record curve.h5
[ "$(wc -l <out)" = 4 ] || fail "three concurrencies are three rows"
is workload.concurrency 4 3
"$DLAB" show curve.h5 -o csv >shown || fail "show"
cmp -s out shown || fail "show differs from what load printed"

load 0 null:service=10ms --find-rate --rate 50 --goodput e2e:1s --requests 30 --warmup 0 --set batch.size=64
says 'requests a second keep the objectives for 99 %'
says '^note: 99 % takes at least 100 requests a run to tell, and a run had 30'
load 0 null:service=10ms --find-rate --rate 50 --goodput e2e:1s --goodput-share 0.9 --requests 30 --warmup 0 --set batch.size=64
grep -q '^note: ' err && fail "30 requests are said to be too few for 90 %"
load 1 null: --prompts text --requests 3
is status skipped
says 'give -m MODEL'
load 1 null:service=100ms --find-rate --rate 100 --goodput e2e:1ms --requests 2 --warmup 0 --set workload.arrivals=constant
says 'no rate down to'

load 1 "$url" --model-name pair,silent --find-rate --rate 100 --goodput tpot:1s --requests 3 --warmup 0 --input-len 5 --output-len 4
says 'is not known: .* give -m MODEL'
[ "$(wc -l <out)" = 2 ] || fail "a search goes on although nothing can be known"

# ---- what bounds a point is said at once, with a record and without, as show says it
bound=(engine -m synthetic:tiny --concurrency 2 --requests 8 --set batch.size=2 --warmup 0 --input-len 20 --output-len 10 -q)
"$DLAB" load "${bound[@]}" --record bound.h5 >out 2>err || fail "a load on the engine"
grep -qE -- '-bound|not calibrated' out || fail "nothing is said to bound the point"
"$DLAB" show bound.h5 >shown || fail "show"
grep -v '^record: ' out | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' | cmp -s - shown || fail "load says otherwise than show: $(diff out shown)"
"$DLAB" load "${bound[@]}" >out 2>err || fail "a load on the engine without a record"
grep -qE -- '-bound|not calibrated' out || fail "without a record nothing is said to bound the point"

load 0 null: --concurrency 8 --duration 1h --warmup 0 --record used.h5
"$DLAB" show used.h5 | grep -q 'requests were used up after' || fail "a run that ended long before its duration says nothing"

# A busy machine may need longer than another until there is something to interrupt.
for pause in 1.5 5 15 45; do
    "$DLAB" load null:service=10ms --rate 20 --duration 1h --warmup 0 --record stopped.h5 --force -o csv >out 2>err &
    pid=$!
    sleep "$pause"
    kill -TERM "$pid" || fail "nothing to interrupt"
    code=0
    wait "$pid" || code=$?
    [ "$code" = 130 ] || fail "interrupted: exit $code"
    [ "$(column status)" = pending ] || break
done
is status truncated
"$DLAB" show stopped.h5 >shown || fail "the record of an interrupted load"
grep -q -- --resume shown && fail "a load is said to be resumed"
"$DLAB" load "$url" --model-name never --concurrency 2 --requests 2 --warmup 0 -o csv >out 2>err &
pid=$!
sleep 1
kill -TERM "$pid" || fail "nothing to interrupt"
wait "$pid" && fail "interrupted: exit 0"
says 'interrupted before anything was measured'

# ---- our own server: everything served, and counted as asked
"$DLAB" serve -m synthetic:tiny --port 0 --batch 8 >served 2>&1 &
ours=$!
trap 'kill "$server" "$ours"; rm -rf "$scratch"' EXIT
for _ in $(seq 200); do grep -q 'listening on http' served && break; sleep 0.05; done
own=$(grep -oE 'http://127[^ ]*' served | head -1)
[ -n "$own" ] || fail "dlab serve does not listen: $(cat served)"
load 0 "$own" -m synthetic:tiny --concurrency 32 --requests 200 --input-len uniform:4,20 --output-len 8 --warmup 0 --record own.h5
is failed 0
python3 - <<'PY' || fail "what our own server was asked"
import csv, subprocess, os
rows = list(csv.DictReader(subprocess.run([os.environ["DLAB"], "export", "own.h5", "--table", "requests"], capture_output=True, text=True, check=True).stdout.splitlines()))
assert len(rows) == 200 and all(int(r["new_tokens"]) == 8 and 4 <= int(r["prompt_tokens"]) <= 20 for r in rows), rows[:3]
PY
load 0 "$own" -m synthetic:tiny --concurrency 4 --requests 12 --turns 3 --input-len 8 --output-len 8 --warmup 0
is failed 0
kill "$ours"
wait "$ours"
trap 'kill "$server"; rm -rf "$scratch"' EXIT

# ---- flags
refused 'a target is expected'
refused 'is no target' nonsense
refused 'no target' ftp://x
refused 'open loop' null: --rate 1 --concurrency 2
refused '--trace: ' null: --trace t.jsonl --rate 8
refused '--burstiness: ' null: --burstiness 2 --concurrency 2
refused '--ramp: ' null: --ramp 2
refused '--rate: ' null: --set workload.rate=2
refused '--find-rate' null: --find-rate --rate inf --goodput e2e:1s
refused '--rate: ' null: --rate 1,x
refused 'inf stands alone' null: --rate 1,inf
refused 'not a length' null: --rate 1 --input-len 1-2
refused 'not a length' null: --rate 1 --output-len gamma:3
refused 'needs objectives' null: --find-rate
refused '--goodput' null: --rate 1 --goodput ttft
refused '--goodput: "tfft"' null: --rate 1 --goodput tfft:3
refused 'about a server' null: --rate 1 --api-key x
refused 'needs a tokenizer' "$url" --model-name each "${few[@]}" --endpoint chat
refused 'only a tokenizer knows' "$url" --model-name each "${few[@]}" --turns 2
refused 'extra members' "$url" --model-name each "${few[@]}" --extra-body '[1]'
refused 'workload.rat' null: --set workload.rat=3
refused 'exists' null: --rate 10 --requests 2 --record each.h5
refused 'grouped' null: --rate 1 --set measure.order=random
kill -0 "$server" || fail "the server is gone"
echo "dlab load: all well"
