"""Tool calls and reasoning through the clients of OpenAI, Anthropic and Ollama, on a model that has to call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from serving import RunningServer

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}
HI: list[Any] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def openai_api(with_tools: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{with_tools.url}/v1", api_key="none", max_retries=0) as api:
        yield api


@pytest.fixture(scope="module")
def anthropic_api(with_tools: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=with_tools.url, api_key="none", max_retries=0) as api:
        yield api


@pytest.fixture(scope="module")
def ollama_api(with_tools: RunningServer) -> Iterator[ollama.Client]:
    client = ollama.Client(host=with_tools.url)
    yield client
    client._client.close()


def check_arguments(arguments: object) -> None:
    assert isinstance(arguments, dict)
    assert arguments["city"] in ("Oslo", "Rome")
    assert arguments["days"] in (1, 2)


def test_openai_a_tool_that_must_be_called_is_whole_and_streamed(
    openai_api: openai.OpenAI, with_tools: RunningServer
) -> None:
    wish: Any = {
        "model": with_tools.model,
        "messages": HI,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "seed": 5,
        "temperature": 0,
        "max_tokens": 300,
        "reasoning_effort": "none",
    }
    choice = openai_api.chat.completions.create(**wish).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert len(choice.message.tool_calls) == 1
    function: Any = choice.message.tool_calls[0]
    assert function.function.name == "weather"
    check_arguments(json.loads(function.function.arguments))
    arguments = names = ""
    for chunk in openai_api.chat.completions.create(**wish, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            arguments += call.function.arguments or ""
            names += call.function.name or ""
    assert names == "weather"
    assert json.loads(arguments) == json.loads(function.function.arguments)


def test_openai_a_call_and_its_result_go_back_into_the_conversation(
    openai_api: openai.OpenAI, with_tools: RunningServer
) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages: Any = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    answer = openai_api.chat.completions.create(
        model=with_tools.model, messages=messages, tools=[TOOL], tool_choice="none", max_tokens=3
    )
    assert answer.choices[0].message.tool_calls is None


def test_openai_reasoning_is_apart(openai_api: openai.OpenAI, with_tools: RunningServer) -> None:
    answer = openai_api.chat.completions.create(
        model=with_tools.model,
        messages=HI,
        max_tokens=9,
        temperature=0,
        extra_body={"chat_template_kwargs": {"enable_thinking": True}},
    )
    message: Any = answer.choices[0].message
    assert len(message.reasoning_content) == 9
    assert message.content == ""


def test_anthropic_a_stop_sequence_is_named(anthropic_api: anthropic.Anthropic, with_tools: RunningServer) -> None:
    wish: dict[str, Any] = {
        "model": with_tools.model,
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "hi"}],
        "extra_body": {"temperature": 0},
    }
    plain = anthropic_api.messages.create(**wish)
    assert (plain.stop_reason, plain.stop_sequence) == ("max_tokens", None)
    (block,) = plain.content
    assert block.type == "text"
    wish["stop_sequences"] = ["no such text", block.text[3:5]]
    stopped = anthropic_api.messages.create(**wish)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", block.text[3:5])
    with anthropic_api.messages.stream(**wish) as stream:
        last = stream.get_final_message()
    assert (last.stop_reason, last.stop_sequence) == ("stop_sequence", block.text[3:5])


def test_anthropic_a_message_is_answered_whole_and_streamed(
    anthropic_api: anthropic.Anthropic, with_tools: RunningServer
) -> None:
    wish: Any = {"model": with_tools.model, "messages": HI, "max_tokens": 6, "system": "be brief"}
    wish["extra_body"] = {"temperature": 0}
    whole = anthropic_api.messages.create(**wish)
    assert whole.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == 6
    block: Any = whole.content[0]
    with anthropic_api.messages.stream(**wish) as stream:
        assert "".join(stream.text_stream) == block.text
        assert stream.get_final_message().usage.output_tokens == 6
    count = anthropic_api.messages.count_tokens(model=with_tools.model, messages=HI, system="be brief")
    assert count.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)


def test_anthropic_a_tool_that_must_be_called(anthropic_api: anthropic.Anthropic, with_tools: RunningServer) -> None:
    tool: Any = {"name": "weather", "input_schema": SCHEMA, "strict": True}
    wish: Any = {
        "model": with_tools.model,
        "messages": HI,
        "max_tokens": 300,
        "tools": [tool],
        "thinking": {"type": "disabled"},
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "extra_body": {"temperature": 0},
    }
    whole = anthropic_api.messages.create(**wish)
    assert whole.stop_reason == "tool_use"
    block: Any = whole.content[-1]
    check_arguments(block.input)
    with anthropic_api.messages.stream(**wish) as stream:
        last: Any = stream.get_final_message().content[-1]
    assert last.input == block.input
    results: Any = [
        *HI,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": block.id, "name": "weather", "input": block.input}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"}]},
    ]
    answer = anthropic_api.messages.create(
        model=with_tools.model, messages=results, tools=[tool], max_tokens=2, extra_body={"temperature": 0}
    )
    assert answer.usage.output_tokens == 2


def test_anthropic_thinking_is_a_block_of_its_own(
    anthropic_api: anthropic.Anthropic, with_tools: RunningServer
) -> None:
    wish: Any = {"model": with_tools.model, "messages": HI, "max_tokens": 5, "thinking": {"type": "adaptive"}}
    wish["extra_body"] = {"temperature": 0}
    assert [block.type for block in anthropic_api.messages.create(**wish).content] == ["thinking"]
    with anthropic_api.messages.stream(**wish) as stream:
        assert [block.type for block in stream.get_final_message().content] == ["thinking"]


def test_anthropic_errors_are_of_its_kinds(anthropic_api: anthropic.Anthropic, with_tools: RunningServer) -> None:
    with pytest.raises(anthropic.NotFoundError):
        anthropic_api.messages.create(model="other", messages=HI, max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        anthropic_api.messages.create(model=with_tools.model, messages=HI, max_tokens=0)


def test_ollama_chat_and_generate_whole_and_streamed(ollama_api: ollama.Client, with_tools: RunningServer) -> None:
    wish: Any = {"model": with_tools.model, "options": {"num_predict": 6, "temperature": 0}}
    whole = ollama_api.chat(**wish, messages=HI)
    assert len(whole.message.content or "") == 6
    assert whole.done_reason == "length"
    assert whole.eval_count == 6
    pieces = list(ollama_api.chat(**wish, messages=HI, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert pieces[-1].done
    assert len(ollama_api.generate(**wish, prompt="hi").response) == 6
    assert len(ollama_api.generate(**wish, prompt="hi", raw=True).response) == 6
    seven = ollama_api.generate(model=with_tools.model, prompt="hi", format={"enum": [7]}, think=False)
    assert json.loads(seven.response) == 7


def test_ollama_tells_of_its_models(ollama_api: ollama.Client, with_tools: RunningServer) -> None:
    assert [model.model for model in ollama_api.list().models] == [with_tools.model]
    assert [model.model for model in ollama_api.ps().models] == [with_tools.model]
    assert "tools" in (ollama_api.show(with_tools.model).capabilities or [])
    assert httpx.get(f"{with_tools.url}/api/version").json()["version"]
    with pytest.raises(ollama.ResponseError) as failure:
        ollama_api.chat("other", HI)
    assert failure.value.status_code == 404


def test_ollama_thinking_is_apart(ollama_api: ollama.Client, with_tools: RunningServer) -> None:
    answer = ollama_api.chat(with_tools.model, HI, think=True, options={"num_predict": 4, "temperature": 0})
    assert len(answer.message.thinking or "") == 4
    assert answer.message.content == ""
