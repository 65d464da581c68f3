"""`/v1/chat/completions`, streamed and whole."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ktdesk.server.answering import Call, answered
from ktdesk.server.answers import Chunk, ToolCall, Usage, WholeAnswer, several_answers
from ktdesk.server.errors import refusal_of
from ktdesk.server.failure_shapes import openai_failure
from ktdesk.server.hosting import ModelHost
from ktdesk.server.openai_chat_types import ChatBody, SamplingFields
from ktdesk.server.openai_wishes import chat_wanted
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import sse, streamed_or_whole
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Content, Part, Reasoning
from ktdesk_engine.sampler import TokenLogprobs
from ktdesk_engine.tokenizer.tokenizer import Tokenizer


def chat_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", operation_id="chat", responses=streamed_or_whole("text/event-stream"))
    async def chat(body: ChatBody, request: Request) -> Response:
        return await answered(
            host,
            request,
            Call(body.model, body.stream is True, body.deadline_seconds),
            lambda model: model.prepare_chat(chat_wanted(body)),
            lambda model, prepared: ChatAnswer(model, prepared, body),
        )

    return router


def wants_usage(body: SamplingFields) -> bool:
    """As an event of its own, at the end of a stream."""
    return body.stream_options is not None and body.stream_options.include_usage


class ChatAnswer:
    """One chat completion, of one or more choices."""

    def __init__(self, model: ServedModel, prepared: Prepared, body: ChatBody) -> None:
        self._model = model
        self._prepared = prepared
        self._num_choices = body.n or 1
        self._with_usage = wants_usage(body)
        self._with_logprobs = prepared.request.num_logprobs is not None
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model.name}

    async def whole(self) -> dict[str, Any]:
        answers = [WholeAnswer() for _ in range(self._num_choices)]
        async with aclosing(several_answers(self._model, self._prepared, self._num_choices)) as chunks:
            async for index, chunk in chunks:
                answers[index].add(chunk)
        usage = sum((answer.usage for answer in answers), Usage())
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage_facts(usage)}

    async def texts(self) -> AsyncGenerator[str, None]:
        """Server-sent events. What fails after the first is told as one of them."""
        usage, has_begun = Usage(), [False] * self._num_choices
        try:
            async with aclosing(several_answers(self._model, self._prepared, self._num_choices)) as chunks:
                async for index, chunk in chunks:
                    usage = usage + (chunk.usage or Usage())
                    if not has_begun[index]:
                        has_begun[index] = True
                        yield self._event(index, {"role": "assistant", "content": ""})
                    for event in self._chunk_events(index, chunk):
                        yield event
        except Exception as error:
            if not any(has_begun):
                raise
            yield sse(openai_failure(refusal_of(error)))
            return
        if self._with_usage:
            end = {"choices": [], "usage": usage_facts(usage), "timings": timing_facts(usage)}
            yield sse({**self._head, "object": "chat.completion.chunk", **end})
        yield "data: [DONE]\n\n"

    def _chunk_events(self, index: int, chunk: Chunk) -> Iterable[str]:
        logprobs = self._logprobs(chunk.logprobs) if self._with_logprobs and chunk.logprobs else None
        deltas = [self._delta(part) for part in chunk.parts] or ([{}] if logprobs else [])
        for i, delta in enumerate(deltas):
            yield self._event(index, delta, logprobs if i == 0 else None)
        if chunk.finish_reason is not None:
            yield self._event(index, {}, reason=chunk.finish_reason)

    def _event(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> str:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        usage = {"usage": None} if self._with_usage else {}
        return sse({**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage})

    def _delta(self, part: Part) -> dict[str, Any]:
        if isinstance(part, Content):
            return {"content": part.text}
        if isinstance(part, Reasoning):
            return {"reasoning_content": part.text}
        if isinstance(part, CallStart):
            call = {"index": part.index, "id": part.call_id or new_call_id(), "type": "function"}
            return {"tool_calls": [{**call, "function": {"name": part.name, "arguments": ""}}]}
        assert isinstance(part, CallArguments)
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}

    def _choice(self, index: int, answer: WholeAnswer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.content or None, "refusal": None}
        if not answer.calls:
            message["content"] = answer.content
        else:
            message["tool_calls"] = [call_facts(call) for call in answer.calls]
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        logprobs = self._logprobs(answer.logprobs) if self._with_logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": answer.finish_reason}

    def _logprobs(self, entries: Iterable[TokenLogprobs]) -> dict[str, Any]:
        """Of all tokens of the answer, those of reasoning and of tool calls too."""
        tokenizer = self._model.engine.tokenizer
        return {"content": [logprob_facts(tokenizer, entry) for entry in entries], "refusal": None}


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def call_facts(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id or new_call_id(), "type": "function", "function": function}


def usage_facts(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.num_prompt_tokens,
        "completion_tokens": usage.num_answer_tokens,
        "total_tokens": usage.num_prompt_tokens + usage.num_answer_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.num_cached_tokens},
    }


def timing_facts(usage: Usage) -> dict[str, float]:
    """Beyond OpenAI's."""
    return {"prefill_seconds": usage.prefill_seconds, "decode_seconds": usage.decode_seconds}


def logprob_facts(tokenizer: Tokenizer, entry: TokenLogprobs) -> dict[str, Any]:
    top = [_token_facts(tokenizer, token_id, logprob) for token_id, logprob in entry.top]
    return {**_token_facts(tokenizer, entry.token_id, entry.logprob), "top_logprobs": top}


def _token_facts(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    """JSON has no infinity: what has no chance at all gets OpenAI's -9999."""
    data = tokenizer.token_bytes(token_id)
    shown = logprob if math.isfinite(logprob) else -9999.0
    return {"token": data.decode(errors="replace"), "bytes": list(data), "logprob": shown}
