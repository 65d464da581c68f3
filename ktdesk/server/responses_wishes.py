"""The items of `/v1/responses`, translated into a conversation."""

from __future__ import annotations

from typing import Any

from ktdesk.server import responses_types as types
from ktdesk.server.errors import BadRequestError
from ktdesk.server.openai_wishes import effort_variables
from ktdesk.server.wanted import ChatWanted, Limits, SamplingWishes, ToolWishes


def response_wanted(body: types.ResponsesBody) -> ChatWanted:
    return ChatWanted(
        _messages(body),
        SamplingWishes(temperature=body.temperature, top_p=body.top_p),
        Limits(body.max_output_tokens),
        _tools(body),
        effort_variables(body.reasoning.effort if body.reasoning else None),
        _schema(body.text.format if body.text else None),
        truncates=body.truncation == "auto",
    )


def _messages(body: types.ResponsesBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    for item in body.input:
        _add(messages, item)
    return messages


def _add(messages: list[dict[str, Any]], item: types.Item) -> None:
    """Reasoning, text and calls of one answer are items of their own, and become one message."""
    if isinstance(item, types.ResultItem):
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
    elif isinstance(item, types.MessageItem) and item.role != "assistant":
        messages.append({"role": item.role, "content": _text(item.content)})
    else:
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        _add_to_answer(messages[-1], item)


def _add_to_answer(message: dict[str, Any], item: types.Item) -> None:
    if isinstance(item, types.MessageItem):
        message["content"] += _text(item.content)
    elif isinstance(item, types.CallItem):
        function = {"name": item.name, "arguments": item.arguments}
        message.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
    elif isinstance(item, types.ReasoningItem) and item.content:
        message["reasoning_content"] = "".join(part.text for part in item.content)


def _text(content: str | list[types.TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _schema(form: types.PlainFormat | types.SchemaFormat | None) -> dict[str, Any] | None:
    if isinstance(form, types.SchemaFormat):
        return form.schema_
    return {"type": "object"} if form is not None and form.type == "json_object" else None


def _tools(body: types.ResponsesBody) -> ToolWishes:
    definitions = [
        {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
        for tool in body.tools or ()
    ]
    choice, parallel = body.tool_choice, body.parallel_tool_calls is not False
    if choice not in (None, "none", "auto") and not definitions:
        raise BadRequestError("tool_choice needs tools", param="tool_choice")
    if isinstance(choice, types.NamedTool):
        return ToolWishes(definitions, "required", choice.name, parallel=False)
    return ToolWishes(definitions, choice or "auto", parallel=parallel)
