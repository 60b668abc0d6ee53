"""A `dlab serve` on a port of the system's choice, and how to talk to it with nothing but Python's library."""
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time


class Server:
    """args: of `dlab serve`, without the port. Ends with the block; what it printed is in .log."""

    def __init__(self, *args, env=None):
        command = [os.environ["DLAB"], "serve", "--port", "0", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.log = ""
        while "listening on" not in self.log:
            line = self.process.stderr.readline()
            if not line:
                raise SystemExit(f"{command} ended with {self.process.wait()}: {self.log}")
            self.log += line
        self.port = int(re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", self.log).group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)

    def wait(self):
        self.log += self.process.stderr.read()
        return self.process.wait(timeout=120)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body as JSON or text)"""
        c = self.connect()
        try:
            sent = dict(headers or {})
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            if body is not None:
                sent.setdefault("Content-Type", "application/json")
            c.request(method, path, body, sent)
            r = c.getresponse()
            text = r.read().decode()
            is_json = r.getheader("Content-Type", "").startswith("application/json")
            return r.status, r.headers, json.loads(text) if is_json and text else text
        finally:
            c.close()

    def complete(self, prompt, **more):
        status, _, j = self.ask("POST", "/v1/completions", {"prompt": prompt, **more})
        check(status == 200, f"{prompt!r} {more}: {status} {j}")
        return j

    def stream(self, path, body):
        """The events of a stream, as they come; [DONE] must end it."""
        c = self.connect()
        try:
            c.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            r = c.getresponse()
            check(r.status == 200, f"stream: {r.status} {r.read() if r.status != 200 else ''}")
            check(r.getheader("Content-Type").startswith("text/event-stream"), r.getheader("Content-Type"))
            done = False
            for line in r:
                line = line.decode().rstrip("\n")
                if not line:
                    continue
                check(line.startswith("data: ") and not done, f"stream: {line}")
                done = line == "data: [DONE]"
                if not done:
                    yield json.loads(line[6:])
            check(done, "the stream does not end with [DONE]")
        finally:
            c.close()

    def metrics(self):
        """{"name{labels}": value}"""
        _, headers, text = self.ask("GET", "/metrics")
        check(headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers["Content-Type"])
        return {k: float(v) for k, v in re.findall(r"^([^#\s]+) (\S+)$", text, re.M)}

    def wait_for(self, what, condition, seconds=60):
        """The metrics, once they meet the condition."""
        end = time.monotonic() + seconds
        while True:
            m = self.metrics()
            if condition(m):
                return m
            check(time.monotonic() < end, f"{what} did not come: {m}")
            time.sleep(0.02)

    def wait_until_idle(self):
        """Nothing runs or waits, no block is held, and no connection but the one that asks is open."""
        names = ("dlab_requests_running", "dlab_requests_waiting", "dlab_kv_used_bytes", "dlab_kv_reserved_bytes")
        return self.wait_for("idleness", lambda m: not any(m[n] for n in names) and m["dlab_http_connections"] == 1)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024


def check(good, what):
    if not good:
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: {what}")


def readable(sock, seconds):
    return bool(select.select([sock], [], [], seconds)[0])
