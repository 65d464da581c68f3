"""Ollama's parameters, translated."""

from __future__ import annotations

from typing import Any

from ktdesk.server import ollama_types as types
from ktdesk.server.openai_wishes import stops
from ktdesk.server.wanted import ChatWanted, Limits, SamplingWishes, TextWanted, ToolWishes
from ktdesk_engine.guidance import Grammar


def chat_wanted(body: types.OllamaChatBody) -> ChatWanted:
    tools = [{"type": "function", "function": tool.function.model_dump(exclude_none=True)} for tool in body.tools or ()]
    messages = [_message(message) for message in body.messages]
    return _chat(body, messages, ToolWishes(tools))


def generate_wanted(body: types.GenerateBody) -> ChatWanted:
    system = [{"role": "system", "content": body.system}] if body.system else []
    return _chat(body, [*system, {"role": "user", "content": body.prompt}], ToolWishes())


def raw_wanted(body: types.GenerateBody) -> TextWanted:
    schema = _schema(body.format)
    grammar = None if schema is None else Grammar.json_schema(schema)
    return TextWanted(body.prompt or "", _sampling(body.options), _limits(body.options), grammar)


def _chat(body: types.AnswerBody, messages: list[dict[str, Any]], tools: ToolWishes) -> ChatWanted:
    return ChatWanted(
        messages,
        _sampling(body.options),
        _limits(body.options),
        tools,
        _variables(body.think),
        _schema(body.format),
    )


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """The name of a tool is called otherwise; what is empty is not there. Images are refused where parts are."""
    renamed = {("name" if key == "tool_name" else key): value for key, value in message.items() if value != []}
    images = renamed.pop("images", None)
    if images:
        renamed["content"] = [{"type": "image"}]
    return renamed


def _variables(think: types.Think | None) -> dict[str, Any]:
    if think is None:
        return {}
    return {"enable_thinking": think is not False, **({"reasoning_effort": think} if isinstance(think, str) else {})}


def _schema(form: object) -> dict[str, Any] | None:
    if form == "json":
        return {"type": "object"}
    return form if isinstance(form, dict) else None


def _limits(options: types.Options | None) -> Limits:
    wanted = options or types.Options.model_validate({})
    count = wanted.num_predict if wanted.num_predict and wanted.num_predict > 0 else None
    return Limits(count, stops(wanted.stop))


def _sampling(options: types.Options | None) -> SamplingWishes:
    wanted = options or types.Options.model_validate({})
    return SamplingWishes(
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        repetition_penalty=wanted.repeat_penalty,
        presence_penalty=wanted.presence_penalty,
        frequency_penalty=wanted.frequency_penalty,
        penalty_window=wanted.repeat_last_n,
        seed=None if wanted.seed is None else wanted.seed % 2**64,
    )
