"""The API over HTTP on a tiny model: what is answered, what is refused and how, and how a server ends."""
import json
import os
import signal
import socket
import tempfile
import threading
import time

from serve_lab import Server, check, readable

LONG = {"max_tokens": 500, "ignore_eos": True}
SLOW = ("-m", "synthetic:attn-64", "--set", "device=ref", "-c", "512") # many times slower than any test waits


def error(answer, status, word, param=None):
    got, headers, j = answer
    check(got == status, f"{got} {j}, expected {status} about {word}")
    e = j["error"]
    check(set(e) == {"message", "type", "param", "code"}, f"error: {e}")
    check(word in e["message"] and "\n" not in e["message"], f"error: {e['message']!r} does not say {word!r}")
    check(param is None or e["param"] == param, f"error: {e}")
    if status in (429, 503):
        check(headers["Retry-After"] == "1", "no Retry-After")


def answers(s):
    check(s.ask("GET", "/health")[::2] == (200, {"status": "ok"}), "health")
    j = s.ask("GET", "/v1/models")[2]
    check([m["id"] for m in j["data"]] == ["synthetic:tiny"], f"models: {j}")
    check(s.ask("GET", "/v1/models/synthetic:tiny")[2]["object"] == "model", "one model")
    whole = s.complete("Hello", max_tokens=20, seed=3, temperature=1)
    check(whole["object"] == "text_completion" and whole["model"] == "synthetic:tiny", whole)
    check(whole["usage"]["prompt_tokens"] == 5 and whole["usage"]["completion_tokens"] == 20, whole["usage"])
    check(whole["choices"][0]["finish_reason"] == "length", whole)
    body = {"prompt": "Hello", "max_tokens": 20, "seed": 3, "temperature": 1, "stream_options": {"include_usage": True}}
    events = list(s.stream("/v1/completions", body))
    check("".join(e["choices"][0]["text"] for e in events[:-1]) == whole["choices"][0]["text"], "stream is not the whole")
    check(events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 20, events[-1])
    check([e["choices"][0]["finish_reason"] for e in events[:-1]][-1] == "length", events[-2])
    check(all(e["usage"] is None for e in events[:-1]), "usage comes once")
    many = s.complete(["a", "bc"], n=2, max_tokens=3, temperature=1)
    check([c["index"] for c in many["choices"]] == [0, 1, 2, 3] and many["usage"]["total_tokens"] == 15, many)
    check(s.complete([[72, 105]], max_tokens=9)["choices"] == s.complete("Hi", max_tokens=9)["choices"], "ids are the text")
    other = s.complete("Hello", max_tokens=20, seed=4, temperature=1)
    check(other["choices"] != whole["choices"], "a seed changes nothing")
    check(s.complete("Hello", max_tokens=20, seed=3, temperature=1)["choices"] == whole["choices"], "a seed is not kept to")


def caches(s):
    prompt = "the same beginning, of more than a few blocks of the cache"
    s.complete(prompt, max_tokens=1)
    cached = s.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(cached >= 16, f"{cached} tokens were cached")


def refusals(s):
    path = "/v1/completions"
    error(s.ask("GET", "/nothing"), 404, "/nothing")
    error(s.ask("GET", "/v1/models/other"), 404, "/v1/models/other")
    error(s.ask("GET", path), 405, "POST")
    check(s.ask("DELETE", "/v1/models")[1]["Allow"] == "GET", "Allow")
    error(s.ask("POST", path, "{}", {"Content-Type": "text/plain"}), 415, "application/json")
    error(s.ask("POST", path, "{"), 400, "not valid JSON")
    error(s.ask("POST", path, ""), 400, "the body is empty")
    error(s.ask("POST", path, "[" * 50000), 400, "depth")
    error(s.ask("POST", path, b'{"prompt": "\xff"}'), 400, "decode")
    error(s.ask("POST", path, {"prompt": "a", "tools": []}), 400, "tools", "tools")
    error(s.ask("POST", path, {"prompt": "a", "logprobs": 5}), 400, "logprobs", "logprobs")
    error(s.ask("POST", path, {"prompt": "a" * 600}), 400, "512 tokens", "prompt")
    error(s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), 400, "chat template")
    error(s.ask("POST", path, "x" * 70000), 413, "65536")
    chunks = (b"x" * 1000 for _ in range(100)) # of no announced length
    error(s.ask("POST", path, chunks_of(chunks), {"Transfer-Encoding": "chunked"}), 413, "65536")
    error(s.ask("GET", "/health", headers={"X-Long": "y" * 5000}), 431, "4096")
    c = s.connect() # one connection serves several requests, refused ones too
    for body in ("{", '{"prompt": "a", "max_tokens": 1}'):
        c.request("POST", path, body, {"Content-Type": "application/json"})
        status = c.getresponse().read() and body
        check(status == body, "a connection ends early")
    c.close()
    for junk in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                 b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", s.port)) as raw:
            raw.sendall(junk)
            check(readable(raw, 60), f"no end to {junk[:20]}")
    check(s.ask("GET", "/health")[0] == 200, "it does not live after junk")


def chunks_of(parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def keys():
    with tempfile.NamedTemporaryFile("w", suffix=".key") as f:
        f.write("secret\n")
        f.flush()
        with Server("-m", "synthetic:tiny", "--api-key-file", f.name) as s:
            error(s.ask("GET", "/v1/models"), 401, "Authorization")
            for wrong in ("Bearer secre", "Bearer secret2", "Bearer ", "secret", "Basic secret"):
                error(s.ask("GET", "/v1/models", headers={"Authorization": wrong}), 401, "Authorization")
            check(s.ask("GET", "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200, "the key is refused")
            check(s.ask("GET", "/health")[0] == 200, "health asks for a key")
    with Server("-m", "synthetic:tiny", env={"DLAB_API_KEY": "other"}) as s:
        check(s.ask("GET", "/v1/models", headers={"Authorization": "Bearer other"})[0] == 200, "$DLAB_API_KEY")
        error(s.ask("GET", "/v1/models"), 401, "Authorization")


def connections():
    """Who comes beyond the limit is told so; those that were there first are served."""
    with Server("-m", "synthetic:tiny", "--max-connections", "8") as s:
        first = [s.connect() for _ in range(8)]
        for c in first:
            c.connect()
        s.wait_for("the connections", lambda m: m["dlab_http_connections"] == 9)
        answer = s.ask("GET", "/v1/models")
        error(answer, 503, "8 connections")
        check(answer[1]["Connection"] == "close", "a connection beyond the limit is kept")
        for c in first:
            c.request("POST", "/v1/completions", '{"prompt": "a", "max_tokens": 1}', {"Content-Type": "application/json"})
            r = c.getresponse()
            check(r.status == 200, f"one of the first is told {r.status} {r.read()}")
            r.read()
        for c in first:
            c.close()
        s.wait_until_idle()
        check(s.ask("GET", "/v1/models")[0] == 200, "the limit stays")


def occupy(s):
    """The only place of the batch, by an answer that has begun and would take very long."""
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": True}),
              {"Content-Type": "application/json"})
    check(c.getresponse().status == 200, "the first")
    return c


def queue():
    with Server(*SLOW, "--batch", "1", "--queue", "1") as s:
        error(s.ask("POST", "/v1/completions", {"prompt": ["a", "b"]}), 400, "--queue", "prompt")
        running, waiting = occupy(s), s.connect()
        waiting.request("POST", "/v1/completions", '{"prompt": "a"}', {"Content-Type": "application/json"})
        s.wait_for("the second", lambda m: m["dlab_requests_running"] == 1 and m["dlab_requests_waiting"] == 1)
        error(s.ask("POST", "/v1/completions", {"prompt": "a"}), 429, "queue")
        check(s.metrics()["dlab_queue_full_total"] == 1, "refusals are counted")
        waiting.close()
        running.close()
        s.wait_until_idle()
        s.complete("a", max_tokens=1)
    with Server(*SLOW, "--batch", "4", "--queue", "2") as s: # all at once: four find a place, two wait
        asked = [s.connect() for _ in range(8)]
        for c in asked:
            c.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 400, "ignore_eos": True}),
                      {"Content-Type": "application/json"})
        s.wait_for("four and two", lambda m: m["dlab_requests_running"] == 4 and m["dlab_requests_waiting"] == 2
                   and m["dlab_queue_full_total"] == 2)
        for c in asked:
            c.close()
        s.wait_until_idle()


def times_out():
    with Server(*SLOW, "--batch", "1", "--timeout", "1") as s:
        body = {"prompt": "a", "max_tokens": 400, "ignore_eos": True}
        error(s.ask("POST", "/v1/completions", body), 504, "longer than the server allows")
        s.wait_until_idle()


def hosts():
    """On a loopback address a name that is not this machine's is refused: a web page may have pointed it here."""
    with Server("-m", "synthetic:tiny") as s:
        for name in ("localhost", f"localhost:{s.port}", f"127.0.0.1:{s.port}", "127.1.2.3", f"[::1]:{s.port}", "[::1]"):
            check(s.ask("GET", "/v1/models", headers={"Host": name})[0] == 200, f"{name} is refused")
        for name in ("evil.example", f"evil.example:{s.port}", "127.example.com", "localhost.evil.example", "", ":", "x" * 300):
            error(s.ask("GET", "/metrics", headers={"Host": name}), 403, "Host")
    with Server("-m", "synthetic:tiny", env={"DLAB_API_KEY": "key"}) as s: # who asks for a key need not care
        check(s.ask("GET", "/health", headers={"Host": "behind.a.proxy"})[0] == 200, "a proxy's name with a key")


def bodies():
    """All bodies that are being read are bounded together."""
    with Server("-m", "synthetic:tiny", "--max-body", "65536") as s:
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{s.port}\r\nContent-Type: application/json\r\n"
                "Content-Length: 65536\r\n\r\n").encode()
        held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(40)]
        for c in held:
            c.sendall(head + b" " * 65535)
        told = []
        for c in held: # each ends its body: those that found no room are told 503, the others that it is no JSON
            c.sendall(b" ")
            c.settimeout(120)
            told.append(c.recv(4096).split()[1])
            c.close()
        check(set(told) == {b"400", b"503"}, f"{told}")
        check(told.count(b"400") >= 4, f"{told}")
        s.wait_until_idle()
        s.complete("a", max_tokens=1)


def priorities():
    with Server("-m", "synthetic:tiny") as s:
        error(s.ask("POST", "/v1/completions", {"prompt": "a", "priority": 1}), 400, "batch.policy", "priority")
    with Server(*SLOW, "--batch", "1", "--set", "batch.policy=priority") as s:
        first, order = occupy(s), []

        def one(priority):
            s.complete("a", max_tokens=1, priority=priority)
            order.append(priority)

        threads = [threading.Thread(target=one, args=(p,)) for p in (5, -5)]
        for i, t in enumerate(threads):
            t.start()
            s.wait_for("the next", lambda m, i=i: m["dlab_requests_waiting"] == i + 1)
        first.close()
        for t in threads:
            t.join()
        check(order == [-5, 5], f"{order}: the lowest goes first")


def small_cache():
    """The context is what the cache can hold, unless one was asked for; what is preempted is answered all the same."""
    for more in ((), ("--set", "batch.preemption=swap")):
        with Server("-m", "synthetic:tiny", "--set", "kv.pool=11 blocks", *more) as s:
            context = s.ask("GET", "/v1/models")[2]["data"][0]["max_model_len"]
            check(100 < context < 200, f"context {context}")
            error(s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": context}), 400, f"{context} tokens", "prompt")
            want = s.complete("a", max_tokens=context - 1, ignore_eos=True)["choices"][0]["text"]
            many = s.complete(["a"] * 6, max_tokens=context - 1, ignore_eos=True)
            check([c["text"] for c in many["choices"]] == [want] * 6, "answers of a full cache")
            m = s.wait_until_idle()
            check(m["dlab_preemptions_total"] > 0, "nobody was preempted")
            check((m["dlab_swapped_in_total"] > 0 and m["dlab_swap_bytes_total"] > 0) == bool(more), f"{m}")


def drains():
    for sig in (signal.SIGTERM, signal.SIGINT):
        with Server("-m", "synthetic:tiny", "--batch", "2") as s:
            kept = s.connect()
            kept.request("GET", "/health")
            kept.getresponse().read()
            bodies = [{"prompt": "a", "n": 2, **LONG} for _ in range(8)]
            results = []
            threads = [threading.Thread(target=lambda b=b: results.append(s.ask("POST", "/v1/completions", b))) for b in bodies]
            for t in threads:
                t.start()
            s.wait_for("work", lambda m: m["dlab_requests_running"] + m["dlab_requests_waiting"] > 0 or len(results) > 0)
            taken = s.wait_for("all of it", lambda m: sum(v for k, v in m.items() if k.startswith("dlab_requests_total")) +
                               m["dlab_requests_running"] + m["dlab_requests_waiting"] == 16)
            s.stop(sig)
            for t in threads:
                t.join()
            check(s.wait() == 0, f"{sig}: exit {s.process.returncode}: {s.log}")
            check([r[0] for r in results] == [200] * 8, f"{sig}: {[r[0] for r in results]}")
            check(all(r[2]["usage"]["completion_tokens"] == 1000 for r in results), f"{sig}: cut short, {taken}")
            kept.close()


def cut_short():
    """What is not finished in time is told so, and the server goes all the same, without an error."""
    with Server("-m", "synthetic:tiny", "--batch", "1", "--drain-timeout", "0") as s:
        events = s.stream("/v1/completions", {"prompt": "a", "n": 1, **LONG})
        next(events)
        others = [s.connect() for _ in range(20)]
        for c in others:
            c.request("POST", "/v1/completions", json.dumps({"prompt": "b", **LONG}), {"Content-Type": "application/json"})
        s.stop()
        states = [c.getresponse().status for c in others]
        check(set(states) <= {200, 503}, f"{states}")
        check(s.wait() == 0, f"exit {s.process.returncode}: {s.log}")
        for c in others:
            c.close()


def cut_short_in_a_long_step():
    """The step in progress is waited for, however long it takes."""
    with Server(*SLOW, "--batch", "2", "--drain-timeout", "0") as s:
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps({"prompt": "a" * 16}), {"Content-Type": "application/json"})
        s.wait_for("the request", lambda m: m["dlab_requests_running"] + m["dlab_requests_waiting"] == 1)
        s.stop()
        check(c.getresponse().status == 503, "it was answered")
        check(s.wait() == 0, f"exit {s.process.returncode}: {s.log}")
        c.close()


def main():
    os.environ.pop("DLAB_API_KEY", None)
    start = time.monotonic()
    with Server("-m", "synthetic:tiny", "--max-body", "65536", "--max-header", "4096", "--idle-timeout", "3") as s:
        for step in (answers, caches, refusals):
            step(s)
        s.wait_until_idle()
    for step in (keys, connections, queue, hosts, bodies, priorities, small_cache, drains, cut_short, cut_short_in_a_long_step,
                 times_out):
        step()
    print(f"serve_http: {time.monotonic() - start:.1f} s")


main()
