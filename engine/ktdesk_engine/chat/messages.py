"""Messages of a conversation: what is accepted, and the one form in which all of the engine holds them.

Accepted is the form of OpenAI's chat API. Checked here, and made uniform:
- keys whose value is None are left out; the content of a message is always there ("" where it was None);
- the arguments of a tool call are a mapping, whether they came as one or as JSON text;
- reasoning, under whichever of its three names it came, is there under the two that templates read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ktdesk_engine.errors import RequestError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


def check_messages(messages: Sequence[Mapping[str, Any]], more_roles: str = "") -> list[dict[str, Any]]:
    """The conversation in uniform form. more_roles: text of a template, which quotes the roles it knows."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise RequestError(f"the conversation must be a list of messages: {_show(messages)}")
    if not messages:
        raise RequestError("the conversation has no messages: give at least one")
    return [_check_message(f"messages[{i}]", message, more_roles) for i, message in enumerate(messages)]


def check_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """None where there is no tool: an empty list would make templates announce tools."""
    if not tools:
        return None
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise RequestError(f"tools must be a list of functions: {_show(tools)}")
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RequestError(f"tools[{i}] must have a function with a name: {_show(tool)}")
    return [dict(tool) for tool in tools]


def _check_message(where: str, message: Mapping[str, Any], more_roles: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be a mapping with role and content: {_show(message)}")
    checked = {key: value for key, value in message.items() if value is not None}
    role = checked.get("role")
    _check_role(where, role, more_roles)
    if role != "assistant" and "content" not in message:
        raise RequestError(f"{where} has no content: give a text, which may be empty")
    checked["content"] = _check_content(where, checked.get("content", ""))
    if "tool_calls" in checked:
        checked["tool_calls"] = _check_tool_calls(f"{where}.tool_calls", checked["tool_calls"])
    return _name_reasoning(checked)


def _check_role(where: str, role: object, more_roles: str) -> None:
    if role is None:
        raise RequestError(f"{where} has no role: give one of {', '.join(ROLES)}")
    known = isinstance(role, str) and (role in ROLES or f"'{role}'" in more_roles or f'"{role}"' in more_roles)
    if not known:
        raise RequestError(f"{where}.role is unknown: {_show(role)}; known are {', '.join(ROLES)}")


def _check_content(where: str, content: object) -> str | list[dict[str, Any]]:
    """A text, or a list of parts of which each is a text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise RequestError(f"{where}.content must be a text or a list of text parts: {_show(content)}")
    return [_check_part(f"{where}.content[{i}]", part) for i, part in enumerate(content)]


def _check_part(where: str, part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise RequestError(f"{where} must be a text part: {_show(part)}")
    if part.get("type") != "text":
        raise RequestError(f"{where} is of type {_show(part.get('type'))}; only text parts can be read")
    if not isinstance(part.get("text"), str):
        raise RequestError(f"{where}.text must be a text: {_show(part.get('text'))}")
    return {"type": "text", "text": part["text"]}


def _check_tool_calls(where: str, calls: object) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise RequestError(f"{where} must be a list: {_show(calls)}")
    return [_check_tool_call(f"{where}[{i}]", call) for i, call in enumerate(calls)]


def _check_tool_call(where: str, call: object) -> dict[str, Any]:
    """{"type": "function", "function": {"name", "arguments"}}; the two may also stand in the call itself."""
    if not isinstance(call, Mapping):
        raise RequestError(f"{where} must be a mapping: {_show(call)}")
    function = call.get("function", call)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where} has no function name: {_show(call)}")
    arguments = _check_arguments(f"{where}.arguments of {function['name']}", function.get("arguments"))
    if "function" not in call:
        return {**call, "arguments": arguments}
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


def _check_arguments(where: str, arguments: object) -> dict[str, Any]:
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{where} are not valid JSON ({error}): {_show(arguments)}") from error
    if arguments is None or arguments == "" or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, Mapping):
        raise RequestError(f"{where} must be a JSON object: {_show(arguments)}")
    return dict(arguments)


def _name_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    reasoning = next((message[key] for key in REASONING_KEYS if key in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _show(value: object) -> str:
    try:
        shown = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep"
    return shown if len(shown) <= 80 else shown[:77] + "..."
