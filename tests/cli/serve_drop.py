"""500 streams opened at once and dropped in the middle leave nothing: no block, no descriptor, no memory."""
import json
import os
import selectors
import socket

from serve_lab import Server, check

STREAMS = 500
ROUNDS = 4
MEMORY = 2 << 20 # bytes that may be more after the last round than after the first, which warms up


def request(i):
    body = json.dumps({"prompt": f"stream {i} ", "max_tokens": 300, "ignore_eos": True, "stream": i % 5 > 0,
                       "temperature": 1, "n": 1 + i % 2}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)) + body


def open_and_drop(s):
    """Each is dropped in another state: right away, in the middle of its body, while it waits, while it is being sent."""
    select = selectors.DefaultSelector()
    sockets = []
    for i in range(STREAMS):
        c = socket.create_connection(("127.0.0.1", s.port))
        sent = request(i)
        c.sendall(sent[:len(sent) // 2] if i % 25 == 0 else sent)
        select.register(c, selectors.EVENT_READ)
        sockets.append(c)
    begun = 0
    while begun < 20: # some have their first words, most wait
        for key, _ in select.select(timeout=60):
            got = key.fileobj.recv(4096)
            check(got, "a stream was closed by the server")
            begun += 1
    select.close()
    for c in sockets:
        c.close()


def sanitized():
    """Sanitizers keep what was freed."""
    with open(os.environ["DLAB"], "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


def main():
    # A peer that goes in the middle of its body may be noticed at the idle timeout only.
    with Server("-m", "synthetic:tiny", "--batch", "8", "--idle-timeout", "5") as s:
        s.complete("warm", max_tokens=5)
        s.wait_until_idle()
        before = s.descriptors()
        first = None
        for _ in range(ROUNDS):
            open_and_drop(s)
            m = s.wait_until_idle()
            check(s.descriptors() <= before + 1, f"{s.descriptors()} descriptors, {before} before")
            first = first or s.rss()
        check(m['dlab_requests_total{finish="cancelled"}'] > STREAMS, "hardly any was dropped while it ran")
        last = s.rss()
        check(sanitized() or last <= first + MEMORY, f"{last} bytes after {ROUNDS} rounds, {first} after the first")
        usage = s.complete("still here", max_tokens=5)["usage"]
        check(usage["completion_tokens"] == 5, f"{usage}")
        s.stop()
        check(s.wait() == 0, f"exit {s.process.returncode}: {s.log}")
        print(f"serve_drop: {ROUNDS} rounds of {STREAMS}; {first} bytes after the first, {last} after the last")


main()
