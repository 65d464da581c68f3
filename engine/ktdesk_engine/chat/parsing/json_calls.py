"""Tool calls whose arguments the model writes as JSON: Hermes and Qwen, DeepSeek, Kimi, Mistral, and plain JSON.

Each reader begins after the tag that opens a call (or a group of them). It returns False, and has yielded
nothing, where what follows is no call after all.
"""

from __future__ import annotations

from ktdesk_engine.chat.parsing.calls import Calls, read_call_object
from ktdesk_engine.chat.parsing.json_reading import stream_value
from ktdesk_engine.chat.parsing.parts import Steps

DEEPSEEK_CALL = "<｜tool▁call▁begin｜>"
KIMI_CALL = "<|tool_call_begin|>"


def read_hermes(calls: Calls) -> Steps[bool]:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`"""
    source = calls.source
    yield from source.spaces()
    if not (yield from read_call_object(calls)):
        return False
    yield from source.spaces()
    yield from source.literal("</tool_call>")
    return True


def read_deepseek(calls: Calls) -> Steps[bool]:
    """After `<｜tool▁calls▁begin｜>`: calls between their tags, then `<｜tool▁calls▁end｜>`."""
    source = calls.source
    num_before = calls.count
    yield from source.spaces()
    while (yield from source.literal(DEEPSEEK_CALL)):
        if not (yield from _read_deepseek_call(calls)):
            return calls.count > num_before
        yield from source.spaces()
    yield from source.literal("<｜tool▁calls▁end｜>")
    return calls.count > num_before


def _read_deepseek_call(calls: Calls) -> Steps[bool]:
    """V3.1: `NAME<｜tool▁sep｜>{...}`. V3 and R1: `function<｜tool▁sep｜>NAME`, then the JSON as a fenced block."""
    source = calls.source
    name = yield from source.header("<｜tool▁sep｜>")
    if not name:
        return False
    yield from source.spaces()
    is_fenced = (yield from source.peek()) != "{"
    if is_fenced:
        name = yield from source.header("\n")
        yield from source.literal("```json")
        yield from source.spaces()
    if not name or (yield from source.peek()) != "{":
        return False
    yield calls.begin(name)
    yield from stream_value(source, calls.arguments)
    yield from source.spaces()
    if is_fenced:
        yield from source.literal("```")
        yield from source.spaces()
    yield from source.literal("<｜tool▁call▁end｜>")
    return True


def read_kimi(calls: Calls) -> Steps[bool]:
    """`<|tool_calls_section_begin|>`, then each `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}
    <|tool_call_end|>`, then `<|tool_calls_section_end|>`."""
    source = calls.source
    num_before = calls.count
    yield from source.spaces()
    while (yield from source.literal(KIMI_CALL)):
        call_id = yield from source.header("<|tool_call_argument_begin|>")
        yield from source.spaces()
        if not call_id or (yield from source.peek()) != "{":
            return calls.count > num_before
        yield calls.begin(call_id.partition(":")[0].removeprefix("functions."), call_id)
        yield from stream_value(source, calls.arguments)
        yield from source.spaces()
        yield from source.literal("<|tool_call_end|>")
        yield from source.spaces()
    yield from source.literal("<|tool_calls_section_end|>")
    return calls.count > num_before


def read_mistral(calls: Calls) -> Steps[bool]:
    """`[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, or `[TOOL_CALLS]NAME[ARGS]{...}`."""
    source = calls.source
    yield from source.spaces()
    if (yield from source.peek()) == "[":
        return (yield from read_call_list(calls))
    header = yield from source.header("[ARGS]")
    yield from source.spaces()
    if not header or (yield from source.peek()) != "{":
        return False
    name, _, call_id = header.partition("[CALL_ID]")
    yield calls.begin(name, call_id or None)
    yield from stream_value(source, calls.arguments)
    return True


def read_call_list(calls: Calls, *, only_offered: bool = False) -> Steps[bool]:
    """A JSON list of calls."""
    source = calls.source
    num_before = calls.count
    yield from source.literal("[")
    while True:
        yield from source.spaces()
        if not (yield from read_call_object(calls, only_offered=only_offered)):
            return calls.count > num_before
        yield from source.spaces()
        if not (yield from source.literal(",")):
            break
    yield from source.literal("]")
    return True


def read_plain(calls: Calls) -> Steps[bool]:
    """`{"name": ..., "parameters": {...}}`, or a list of such, that names a tool on offer."""
    source = calls.source
    yield from source.spaces()
    yield from source.literal("<|python_tag|>")
    yield from source.spaces()
    if (yield from source.peek()) == "[":
        return (yield from read_call_list(calls, only_offered=True))
    return (yield from read_call_object(calls, only_offered=True))
