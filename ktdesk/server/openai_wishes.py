"""OpenAI's parameters, translated."""

from __future__ import annotations

from typing import Any

from ktdesk.server import openai_chat_types as types
from ktdesk.server.errors import BadRequestError
from ktdesk.server.wanted import ChatWanted, Limits, SamplingWishes, TextWanted, ToolWishes
from ktdesk_engine.guidance import Grammar


def chat_wanted(body: types.ChatBody) -> ChatWanted:
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise BadRequestError("max_tokens is the old name of max_completion_tokens: give one", param="max_tokens")
    return ChatWanted(
        body.messages,
        sampling(body),
        Limits(
            body.max_completion_tokens or body.max_tokens,
            stops(body.stop),
            (body.top_logprobs or 0) if body.logprobs else None,
            bool(body.ignore_eos),
        ),
        _tools(body),
        {**effort_variables(body.reasoning_effort), **(body.chat_template_kwargs or {})},
        _schema(body.response_format),
        grammar(body),
        truncates=body.truncation == "auto",
    )


def text_wanted(body: types.CompletionBody) -> TextWanted:
    prompt: Any = body.prompt
    if isinstance(prompt, list):
        prompt = prompt[0] if isinstance(prompt[0], str) else tuple(prompt)
    limits = Limits(body.max_tokens or 16, stops(body.stop), body.logprobs, bool(body.ignore_eos))
    return TextWanted(prompt, sampling(body), limits, grammar(body))


def sampling(body: types.SamplingFields) -> SamplingWishes:
    return SamplingWishes(
        temperature=body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        penalty_window=-1 if body.presence_penalty or body.frequency_penalty else None,
        seed=None if body.seed is None else body.seed % 2**64,
        logit_bias=None if not body.logit_bias else bias_pairs(body.logit_bias),
    )


def bias_pairs(table: dict[str, float]) -> tuple[tuple[int, float], ...]:
    """-100 bans a token, as OpenAI says."""
    return tuple((int(token_id), float("-inf") if bias == -100 else bias) for token_id, bias in table.items())


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def effort_variables(effort: str | None) -> dict[str, Any]:
    if effort is None:
        return {}
    if effort == "none":
        return {"enable_thinking": False}
    return {"reasoning_effort": effort, "enable_thinking": True}


def grammar(body: types.SamplingFields) -> Grammar | None:
    return None if body.grammar is None else Grammar(body.grammar.kind, body.grammar.text)


def _schema(wanted: types.ResponseFormat | None) -> dict[str, Any] | None:
    if isinstance(wanted, types.JsonObjectFormat):
        return {"type": "object"}
    if isinstance(wanted, types.JsonSchemaFormat):
        return wanted.json_schema.schema_ or {}
    return None


def _tools(body: types.ChatBody) -> ToolWishes:
    definitions = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    choice, parallel = body.tool_choice, body.parallel_tool_calls is not False
    if choice not in (None, "none") and not definitions:
        raise BadRequestError("tool_choice needs tools", param="tool_choice")
    if isinstance(choice, types.NamedTool):
        return ToolWishes(definitions, "required", choice.function.name, parallel=False)
    return ToolWishes(definitions, choice or "auto", parallel=parallel)
