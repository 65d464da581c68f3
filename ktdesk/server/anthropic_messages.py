"""`/v1/messages` and `/v1/messages/count_tokens`, as Anthropic's clients want them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ktdesk.server.answering import Call, answered
from ktdesk.server.answers import Chunk, FinishReason, ToolCall, Usage, WholeAnswer, answer_chunks, whole_answer
from ktdesk.server.anthropic_types import MessagesBody, PromptBody
from ktdesk.server.anthropic_wishes import message_wanted, prompt_wanted
from ktdesk.server.errors import refusal_of
from ktdesk.server.failure_shapes import anthropic_failure
from ktdesk.server.hosting import ModelHost
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import sse, streamed_or_whole
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Part, Reasoning

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def anthropic_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(tags=["Anthropic"])

    @router.post("/v1/messages", operation_id="message", responses=streamed_or_whole("text/event-stream"))
    async def message(body: MessagesBody, request: Request) -> Response:
        return await answered(
            host,
            request,
            Call(body.model, body.stream is True, body.deadline_seconds),
            lambda model: model.prepare_chat(message_wanted(body)),
            lambda model, prepared: MessageWriter(model, prepared, body.stop_sequences or ()),
        )

    @router.post("/v1/messages/count_tokens", operation_id="count_message_tokens")
    async def count(body: PromptBody, request: Request) -> dict[str, Any]:
        model = await host.model(request.state.uses, body.model)
        return {"input_tokens": await asyncio.to_thread(lambda: model.count_chat(prompt_wanted(body)))}

    return router


def _blocks(answer: WholeAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
    if answer.content:
        blocks.append({"type": "text", "text": answer.content})
    return blocks + [_tool_use(call) for call in answer.calls]


def _message(model: ServedModel) -> dict[str, Any]:
    head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model.name}
    return {**head, "content": [], "stop_reason": None, "stop_sequence": None}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    """Arguments that were cut are no JSON, and this interface has no other place for them."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    return {"type": "tool_use", "id": call.call_id or _new_tool_id(), "name": call.name, "input": arguments}


def _new_tool_id() -> str:
    return f"toolu_{uuid.uuid4().hex[:24]}"


def _usage(usage: Usage) -> dict[str, int]:
    """Tokens that came from the cache are counted apart."""
    return {
        "input_tokens": usage.num_prompt_tokens - usage.num_cached_tokens,
        "cache_read_input_tokens": usage.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.num_answer_tokens,
    }


class MessageWriter:
    """One message: blocks of thinking, text and tool use, one after another."""

    def __init__(self, model: ServedModel, prepared: Prepared, stop_sequences: Sequence[str]) -> None:
        """stop_sequences: of the request; the model's template may have others, which nobody is told of."""
        self._model = model
        self._prepared = prepared
        self._stop_sequences = stop_sequences
        self._num_blocks = 0
        self._open_kind: type[Part] | None = None

    async def whole(self) -> dict[str, Any]:
        answer = await whole_answer(self._model, self._prepared)
        blocks = _blocks(answer)
        stop = self._stop(answer.finish_reason, answer.stop_string)
        return {**_message(self._model), "content": blocks, **stop, "usage": _usage(answer.usage)}

    async def texts(self) -> AsyncGenerator[str, None]:
        has_begun = False
        try:
            async with aclosing(answer_chunks(self._model, self._prepared)) as chunks:
                async for chunk in chunks:
                    if not has_begun:
                        has_begun = True
                        yield self._start()
                    for event in self._of_chunk(chunk):
                        yield event
        except Exception as error:
            if not has_begun:
                raise
            yield sse(anthropic_failure(refusal_of(error)), "error")

    def _start(self) -> str:
        usage = _usage(Usage(len(self._prepared.request.token_ids)))
        return _event("message_start", message={**_message(self._model), "usage": usage})

    def _of_chunk(self, chunk: Chunk) -> Iterator[str]:
        for part in chunk.parts:
            if self._open_kind is not _block_kind(part) or isinstance(part, CallStart):
                yield from self._close_block()
                yield self._open_block(part)
            if not isinstance(part, CallStart):
                yield _event("content_block_delta", index=self._num_blocks - 1, delta=_delta(part))
        if chunk.finish_reason is not None:
            yield from self._close_block()
            delta = self._stop(chunk.finish_reason, chunk.stop_string)
            yield _event("message_delta", delta=delta, usage=_usage(chunk.usage or Usage()))
            yield _event("message_stop")

    def _stop(self, reason: FinishReason, stop_string: str | None) -> dict[str, str | None]:
        if reason == "stop" and stop_string in self._stop_sequences:
            return {"stop_reason": "stop_sequence", "stop_sequence": stop_string}
        return {"stop_reason": STOP_REASONS[reason], "stop_sequence": None}

    def _open_block(self, part: Part) -> str:
        self._open_kind = _block_kind(part)
        self._num_blocks += 1
        if isinstance(part, CallStart):
            block = {"type": "tool_use", "id": part.call_id or _new_tool_id(), "name": part.name, "input": {}}
        elif isinstance(part, Reasoning):
            block = {"type": "thinking", "thinking": "", "signature": ""}
        else:
            block = {"type": "text", "text": ""}
        return _event("content_block_start", index=self._num_blocks - 1, content_block=block)

    def _close_block(self) -> Iterator[str]:
        if self._open_kind is not None:
            self._open_kind = None
            yield _event("content_block_stop", index=self._num_blocks - 1)


def _block_kind(part: Part) -> type[Part]:
    """Arguments go on with the block of their call."""
    return CallStart if isinstance(part, CallArguments) else type(part)


def _delta(part: Part) -> dict[str, str]:
    assert not isinstance(part, CallStart)
    if isinstance(part, CallArguments):
        return {"type": "input_json_delta", "partial_json": part.text}
    if isinstance(part, Reasoning):
        return {"type": "thinking_delta", "thinking": part.text}
    return {"type": "text_delta", "text": part.text}


def _event(kind: str, **facts: Any) -> str:
    return sse({"type": kind, **facts}, kind)
