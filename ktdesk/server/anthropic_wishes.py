"""Anthropic's conversations and parameters, translated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ktdesk.server import anthropic_types as types
from ktdesk.server.errors import BadRequestError
from ktdesk.server.wanted import ChatWanted, Limits, SamplingWishes, ToolMode, ToolWishes


def message_wanted(body: types.MessagesBody) -> ChatWanted:
    return ChatWanted(
        _messages(body),
        SamplingWishes(temperature=body.temperature, top_k=body.top_k, top_p=body.top_p),
        Limits(body.max_tokens, tuple(body.stop_sequences or ())),
        _tools(body),
        _variables(body.thinking),
    )


def prompt_wanted(body: types.PromptBody) -> ChatWanted:
    return ChatWanted(_messages(body), tools=_tools(body), variables=_variables(body.thinking))


def _variables(thinking: types.Thinking | None) -> dict[str, Any]:
    return {} if thinking is None else {"enable_thinking": thinking.type != "disabled"}


def _messages(body: types.PromptBody) -> list[dict[str, Any]]:
    """In OpenAI's form."""
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _text(body.system)})
    for message in body.messages:
        content = message.content
        blocks = [types.TextBlock(type="text", text=content)] if isinstance(content, str) else content
        messages += _of_user(blocks) if message.role == "user" else [_of_assistant(blocks)]
    return messages


def _of_user(blocks: Iterable[types.Block]) -> Iterator[dict[str, Any]]:
    """Results of tools are messages of their own. They come before what the user says with them."""
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, types.ToolResultBlock):
            content = _text(block.content or "")
            content = f"Error: {content}" if block.is_error else content
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
        elif isinstance(block, types.TextBlock):
            texts.append(block.text)
        else:
            raise BadRequestError(f"a message of the user cannot have a block of type {block.type}")
    if texts:
        yield {"role": "user", "content": "\n".join(texts)}


def _of_assistant(blocks: Iterable[types.Block]) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, types.TextBlock):
            texts.append(block.text)
        elif isinstance(block, types.ThinkingBlock):
            thoughts.append(block.thinking)
        elif isinstance(block, types.ToolUseBlock):
            function = {"name": block.name, "arguments": block.input}
            calls.append({"id": block.id, "type": "function", "function": function})
        else:
            raise BadRequestError(f"a message of the assistant cannot have a block of type {block.type}")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _text(content: str | list[types.TextBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _tools(body: types.PromptBody) -> ToolWishes:
    definitions = [_definition(tool) for tool in body.tools or ()]
    choice = body.tool_choice
    if choice is None:
        return ToolWishes(definitions)
    if choice.type != "none" and not definitions:
        raise BadRequestError("tool_choice needs tools", param="tool_choice")
    if (choice.type == "tool") != (choice.name is not None):
        raise BadRequestError("tool_choice names a tool where its type is tool, and only there", param="tool_choice")
    parallel = not choice.disable_parallel_tool_use
    if choice.type == "tool":
        return ToolWishes(definitions, "required", choice.name, parallel=False)
    modes: dict[str, ToolMode] = {"any": "required", "none": "none"}
    return ToolWishes(definitions, modes.get(choice.type, "auto"), parallel=parallel)


def _definition(tool: types.Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": {**function, "strict": tool.strict is True}}
