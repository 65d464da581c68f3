"""`/v1/responses` through OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from serving import RunningServer

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}


@pytest.fixture(scope="module")
def api(with_tools: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{with_tools.url}/v1", api_key="none", max_retries=0) as api:
        yield api


def test_a_response_is_whole_and_streamed(api: openai.OpenAI, with_tools: RunningServer) -> None:
    wish: Any = {"model": with_tools.model, "input": "hi", "max_output_tokens": 6, "temperature": 0}
    whole = api.responses.create(**wish, instructions="be brief")
    assert whole.status == "incomplete"
    assert whole.usage is not None
    assert whole.usage.output_tokens == 6
    with api.responses.stream(**wish, instructions="be brief") as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text
    assert len(whole.output_text) == 6


def test_a_tool_is_called_and_its_result_goes_back(api: openai.OpenAI, with_tools: RunningServer) -> None:
    wish: Any = {"model": with_tools.model, "tools": [TOOL], "max_output_tokens": 200, "reasoning": {"effort": "none"}}
    first = api.responses.create(**wish, input="hi", tool_choice="required", parallel_tool_calls=False)
    call: Any = first.output[-1]
    assert call.type == "function_call"
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    items: Any = [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
    ]
    second = api.responses.create(**{**wish, "max_output_tokens": 3}, input=items, tool_choice="none")
    assert second.usage is not None
    assert second.usage.input_tokens > (first.usage.input_tokens if first.usage else 0)


def test_what_would_need_a_memory_is_refused(api: openai.OpenAI, with_tools: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        api.responses.create(model=with_tools.model, input="hi", previous_response_id="resp_1")
