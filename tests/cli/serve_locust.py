"""A locustfile: users who complete prompts, streamed and not."""
import json

from locust import HttpUser, constant, task


class User(HttpUser):
    wait_time = constant(0)

    @task
    def complete(self):
        body = {"prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True}
        with self.client.post("/v1/completions", json=body, catch_response=True) as r:
            if r.status_code != 200 or r.json()["usage"]["completion_tokens"] != 8:
                r.failure(f"{r.status_code} {r.text}")

    @task
    def stream(self):
        body = {"prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        with self.client.post("/v1/completions", json=body, stream=True, name="stream", catch_response=True) as r:
            lines = [line[6:] for line in r.iter_lines(decode_unicode=True) if line]
            if not lines or lines[-1] != "[DONE]" or json.loads(lines[-2])["usage"]["completion_tokens"] != 8:
                r.failure(f"{r.status_code} {lines[-2:]}")
