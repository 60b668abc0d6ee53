#!/usr/bin/env python3
"""A server with OpenAI's streaming endpoints that answers as it is told to, for the tests of `dlab load`.

fake_openai.py PORT_FILE [LOG_FILE]: listens on a port of the system's choice, which it writes to PORT_FILE. How it answers
is the model's name of a request: words with commas between.

  each         one chunk a token (default)        usage       the token count in a last chunk (default) …
  pair         two tokens a chunk                 silent      … or none
  eos          the last token has no text         split       a TCP write for each few bytes, and \\r\\n line ends
  status=N     an HTTP error                      midway      closes the connection after half of the tokens
  garbage      a chunk that is no JSON            never       takes the request and does not answer
  stall        stops after half of the tokens     slow=MS     between chunks
  error        an error within the stream         bare        ends without [DONE] and finish_reason
  short        half of the tokens asked for       first=MS    before the first chunk
  unstopped    ends without [DONE], but with a finish_reason
  reason=WORD  the finish_reason                  count=N     what usage says, whatever there was
  linger=MS    between [DONE] and the end of the body
  hollow=N     every Nth answer is empty
  unique       (with status=N) an error text of its own for each request, and a long one
"""
import asyncio
import itertools
import json
import sys


class Request:
    def __init__(self, path, head, body):
        self.path, self.head, self.body = path, head, body
        self.words = str(body.get("model", "")).split(",")

    def has(self, word):
        return word in self.words

    def number(self, word, default):
        for w in self.words:
            if w.startswith(word + "="):
                return int(w[len(word) + 1:])
        return default

    def word(self, word, default):
        return next((w[len(word) + 1:] for w in self.words if w.startswith(word + "=")), default)


async def read_request(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(lines[0].split(" ")[1], headers, json.loads(body) if body else {})


def event(data):
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(r, text, finish=None):
    if r.path.endswith("/chat/completions"):
        return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


async def send(w, r, data):
    """One piece of a chunked body; split: in the smallest pieces that TCP takes."""
    if r.has("split"):
        data = data.replace(b"\n", b"\r\n")
    framed = b"%x\r\n" % len(data) + data + b"\r\n"
    if not r.has("split"):
        w.write(framed)
        return await w.drain()
    for i in range(0, len(framed), 7):
        w.write(framed[i:i + 7])
        await w.drain()
        await asyncio.sleep(0)


answers = itertools.count(1)


async def stream(w, r):
    """True: the connection may be used again."""
    n = int(r.body.get("max_tokens", 16)) // (2 if r.has("short") else 1)
    if r.number("hollow", 0) and next(answers) % r.number("hollow", 0) == 0:
        n = 0
    a_chunk = 2 if r.has("pair") else 1
    w.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    await w.drain()
    await asyncio.sleep(r.number("first", 0) / 1000)
    if r.path.endswith("/chat/completions"):
        await send(w, r, event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
    for i in range(0, n, a_chunk):
        last = i + a_chunk >= n
        if i * 2 >= n:
            if r.has("midway"):
                return False
            if r.has("stall"):
                await asyncio.sleep(3600)
            if r.has("garbage"):
                await send(w, r, b"data: {\"choices\": [oops\n\n")
            if r.has("error"):
                await send(w, r, event({"error": {"message": "out of blocks"}}))
        text = "" if r.has("eos") and last else "ab" * min(a_chunk, n - i)
        finish = None if not last or r.has("bare") else "stop" if r.has("eos") or r.has("short") else r.word("reason", "length")
        await send(w, r, chunk(r, text, finish))
        await asyncio.sleep(r.number("slow", 0) / 1000)
    if n == 0:
        await send(w, r, chunk(r, "", "stop"))
    if not r.has("silent"):
        prompt = r.body.get("prompt", "")
        await send(w, r, event({"choices": [], "usage": {
            "prompt_tokens": len(prompt), "completion_tokens": r.number("count", n),
            "prompt_tokens_details": {"cached_tokens": r.number("cached", 0)}}}))
    if not r.has("bare") and not r.has("unstopped"):
        await send(w, r, b": a comment\ndata: [DONE]\n\n")
        await asyncio.sleep(r.number("linger", 0) / 1000)
    w.write(b"0\r\n\r\n")
    await w.drain()
    return True


def plain(w, status, body):
    data = json.dumps(body).encode()
    w.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)


async def answer(w, r, log):
    if log:
        print(json.dumps({"path": r.path, "auth": r.head.get("authorization"), "body": r.body}), file=log, flush=True)
    if r.path.endswith("/models"):
        plain(w, 200, {"data": [{"id": "each"}, {"id": "other"}]})
        return True
    if r.has("never"):
        await asyncio.sleep(3600)
    if r.number("status", 0):
        message = f"told to, request {id(r)} " + "x" * 500 if r.has("unique") else "told to"
        plain(w, r.number("status", 0), {"error": {"message": message}})
        return True
    return await stream(w, r)


async def serve(reader, writer, log):
    try:
        while await answer(writer, await read_request(reader), log):
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    log = open(sys.argv[2], "w") if len(sys.argv) > 2 else None
    server = await asyncio.start_server(lambda r, w: serve(r, w, log), "127.0.0.1", 0, backlog=4096)
    with open(sys.argv[1] + ".tmp", "w") as f:
        f.write(str(server.sockets[0].getsockname()[1]))
    import os
    os.rename(sys.argv[1] + ".tmp", sys.argv[1])
    await server.serve_forever()


asyncio.run(main())
