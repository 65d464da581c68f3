"""OpenAI's own client against the server: chat, completions, models; streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from serving import RunningServer, running_server

from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig

HI: list[Any] = [{"role": "user", "content": "the cat"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
        "strict": True,
    },
}


@pytest.fixture(scope="module")
def api(served: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as api:
        yield api


def test_a_chat_is_answered_and_counted(api: openai.OpenAI, served: RunningServer) -> None:
    answer = api.chat.completions.create(model=served.model, messages=HI, max_tokens=5, temperature=0)
    assert answer.choices[0].finish_reason == "length"
    assert len(answer.choices[0].message.content or "") == 5
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_a_stream_says_the_same_as_the_whole_answer(api: openai.OpenAI, served: RunningServer) -> None:
    wish: Any = {"model": served.model, "messages": HI, "max_tokens": 8, "temperature": 0}
    whole = api.chat.completions.create(**wish)
    chunks = list(api.chat.completions.create(**wish, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage == whole.usage
    assert not chunks[-1].choices


def test_several_answers_have_seeds_of_their_own_and_repeat(api: openai.OpenAI, served: RunningServer) -> None:
    wish: Any = {"model": served.model, "messages": HI, "max_tokens": 12, "temperature": 1.5, "seed": 4, "n": 3}
    first = [choice.message.content for choice in api.chat.completions.create(**wish).choices]
    assert len(set(first)) == 3
    assert [choice.message.content for choice in api.chat.completions.create(**wish).choices] == first
    streamed = ["", "", ""]
    for chunk in api.chat.completions.create(**wish, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == first


def test_logprobs_have_each_token_and_the_likeliest(api: openai.OpenAI, served: RunningServer) -> None:
    wish: Any = {"model": served.model, "messages": HI, "max_tokens": 4, "temperature": 0}
    answer = api.chat.completions.create(**wish, logprobs=True, top_logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == answer.choices[0].message.content
    for entry in logprobs.content:
        assert entry.top_logprobs[0].token == entry.token
        assert len(entry.top_logprobs) == 3
        assert bytes(entry.bytes or []).decode() == entry.token


def test_a_stop_text_ends_the_answer_before_it(api: openai.OpenAI, served: RunningServer) -> None:
    wish: Any = {"model": served.model, "messages": HI, "max_tokens": 20, "temperature": 0}
    text = api.chat.completions.create(**wish).choices[0].message.content or ""
    answer = api.chat.completions.create(**wish, stop=[text[7:9]])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == text[: text.index(text[7:9])]


def test_a_banned_token_does_not_come(api: openai.OpenAI, served: RunningServer) -> None:
    wish: Any = {"model": served.model, "messages": HI, "max_tokens": 1, "temperature": 0}
    first = api.chat.completions.create(**wish).choices[0].message.content
    token = httpx.post(f"{served.url}/tokenize", json={"text": first}).json()["tokens"][0]
    second = api.chat.completions.create(**wish, logit_bias={str(token): -100}).choices[0].message.content
    assert second != first


def test_a_json_schema_holds(api: openai.OpenAI, served: RunningServer) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [3, 4]}}, "required": ["n"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    answer = api.chat.completions.create(model=served.model, messages=HI, max_tokens=100, response_format=form)
    assert json.loads(answer.choices[0].message.content or "")["n"] in (3, 4)


def test_a_schema_that_cannot_be_used_is_an_error(api: openai.OpenAI, served: RunningServer) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
    with pytest.raises(openai.BadRequestError, match="JSON schema"):
        api.chat.completions.create(model=served.model, messages=HI, response_format=form)


def test_tools_that_the_template_does_not_know_are_refused(api: openai.OpenAI, served: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError, match="knows no tools"):
        api.chat.completions.create(model=served.model, messages=HI, tools=[WEATHER])


def test_a_completion_goes_on_from_a_text(api: openai.OpenAI, served: RunningServer) -> None:
    wish: Any = {"model": served.model, "prompt": "the cat", "max_tokens": 6, "temperature": 0}
    whole = api.completions.create(**wish, logprobs=2)
    streamed = "".join(chunk.choices[0].text for chunk in api.completions.create(**wish, stream=True))
    assert streamed == whole.choices[0].text
    assert len(streamed) == 6
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.tokens or []) == 6


def test_the_model_is_listed_and_another_is_not_found(api: openai.OpenAI, served: RunningServer) -> None:
    assert [model.id for model in api.models.list()] == [served.model]
    assert api.models.retrieve(served.model).id == served.model
    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here; these are: talker"):
        api.chat.completions.create(model="other", messages=HI)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"audio": {}}, "audio"),
        ({"n": 0}, "n"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"store": True}, "store"),
    ],
)
def test_what_is_not_supported_is_an_error_that_names_it(
    client: httpx.Client, served: RunningServer, change: dict[str, Any], param: str
) -> None:
    body = {"model": served.model, "messages": HI, **change}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user"}],
        [{"role": "nobody", "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
        [{"role": "user", "content": 3}],
    ],
)
def test_messages_that_cannot_be_read_are_refused(
    client: httpx.Client, served: RunningServer, messages: list[Any]
) -> None:
    response = client.post("/v1/chat/completions", json={"model": served.model, "messages": messages})
    assert response.status_code == 400
    assert "messages[0]" in response.json()["error"]["message"]


def test_a_client_that_leaves_frees_its_place(client: httpx.Client, served: RunningServer) -> None:
    body = {"model": served.model, "messages": HI, "max_tokens": 100_000, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert next(response.iter_lines()).startswith("data: ")
    answer = client.post("/v1/chat/completions", json={**body, "max_tokens": 2, "stream": False})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 1}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 1}),
        ("/v1/messages", {"messages": HI, "max_tokens": 1}),
        ("/api/chat", {"messages": HI, "stream": False, "options": {"num_predict": 1}}),
    ],
)
def test_where_no_model_is_named_the_first_is_meant(served: RunningServer, path: str, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{served.url}{path}", json=body)
    assert (answer.status_code, answer.json().get("model")) == (200, served.model)


def test_a_body_that_is_no_json_is_called_so(served: RunningServer) -> None:
    answer = httpx.post(f"{served.url}/v1/chat/completions", content="{", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the body is no JSON: ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[]", "the body must be a JSON object"),
        (b"", "the body must be a JSON object"),
        (b'{"messages":' + b"[" * 50_000, "nested less than a thousand deep"),
        (b'{"seed": 1' + b"0" * 5000 + b"}", "numbers of less than 4,300 digits"),
        (b'{"messages": "\xff"}', "JSON in UTF-8"),
        (b"{}", "messages: Field required"),
        (b'{"messages": []}', "messages: must not be empty"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1.5}', "max_tokens: must be a whole number"),
        (b'{"messages": [{"role": "user", "content": "x"}], "top_p": 2}', "top_p: must be at most 1"),
        (b'{"messages": [{"role": "user", "content": "x"}], "stop": 5}', "stop: Input should be a valid string or a"),
        (b'{"messages": [{"role": "user", "content": "x"}], "stop": ["a", 5]}', "stop.1: Input should be a valid str"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(served: RunningServer, content: bytes, told: str) -> None:
    answer = httpx.post(f"{served.url}/v1/chat/completions", content=content, timeout=60)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("context", "advice"), [(None, "shorten the prompt"), (64, "give a larger --context at the start")]
)
def test_a_larger_context_is_advised_only_where_the_model_can_have_it(
    tiny_model: Callable[[str], Path], context: int | None, advice: str
) -> None:
    config = EngineConfig(compute="int8", num_threads=1, context=context)
    start = contextmanager(running_server)
    with start(tiny_model("llama-moe"), ServerSettings(port=0, finish_seconds=1), config) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a b " * 500}, timeout=60)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].endswith(advice)
