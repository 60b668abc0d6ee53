"""The openai package's client against a server of the real model."""
import sys

import openai

from serve_lab import Server, check

MODEL = sys.argv[1]
MESSAGES = [{"role": "user", "content": "Name three colours."}]


def completions(client):
    c = client.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=12, n=2, temperature=0.8, seed=1)
    check(len(c.choices) == 2 and c.choices[0].text and c.usage.completion_tokens == 24, c)
    again = client.completions.create(model="smollm2", prompt="Once upon a time", max_tokens=12, n=2, temperature=0.8, seed=1)
    check([x.text for x in c.choices] == [x.text for x in again.choices], "a seed is not kept to")
    c = client.completions.create(model="smollm2", prompt="1, 2, 3, 4,", max_tokens=12, stop=[" 6"])
    check(c.choices[0].text == " 5," and c.choices[0].finish_reason == "stop", c)


def chat(client):
    whole = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_completion_tokens=24)
    text, usage, ends = "", None, []
    stream = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=24, stream=True,
                                            stream_options={"include_usage": True})
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
    check(text == whole.choices[0].message.content and text, f"{text!r}, whole: {whole}")
    check(ends == [whole.choices[0].finish_reason], ends)
    check(usage.completion_tokens == whole.usage.completion_tokens and usage.prompt_tokens == whole.usage.prompt_tokens, usage)
    check(usage.prompt_tokens_details.cached_tokens > 0, "the second time the prompt is in the cache")


def errors(client):
    try:
        client.chat.completions.create(model="smollm2", messages=MESSAGES, response_format={"type": "json_object"})
        check(False, "response_format was taken")
    except openai.BadRequestError as e:
        check(e.param == "response_format" and e.code == "unsupported_parameter", e)
    try:
        client.completions.create(model="gpt-4", prompt="a")
        check(False, "another model was taken")
    except openai.NotFoundError as e:
        check(e.param == "model", e)
    with openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0) as stranger:
        try:
            stranger.models.list()
            check(False, "a wrong key was taken")
        except openai.AuthenticationError as e:
            check(e.code == "invalid_api_key", e)


with Server("-m", MODEL, "-c", "512", "--batch", "4", "--name", "smollm2", env={"DLAB_API_KEY": "secret"}) as server:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0) as api:
        check([m.id for m in api.models.list()] == ["smollm2"], "models")
        for step in (completions, chat, errors):
            step(api)
    server.wait_until_idle()
print(f"serve_openai: openai {openai.__version__} is served")
