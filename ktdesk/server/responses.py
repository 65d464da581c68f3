"""`/v1/responses`, streamed and whole. Nothing is stored: a conversation comes whole with each request."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ktdesk.server.answering import Call, answered
from ktdesk.server.answers import Chunk, Usage, answer_chunks
from ktdesk.server.errors import refusal_of
from ktdesk.server.hosting import ModelHost
from ktdesk.server.openai_chat import new_call_id
from ktdesk.server.responses_types import ResponsesBody
from ktdesk.server.responses_wishes import response_wanted
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import sse, streamed_or_whole
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Content, Part, Reasoning

Facts = dict[str, Any]


def responses_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/responses", operation_id="respond", responses=streamed_or_whole("text/event-stream"))
    async def respond(body: ResponsesBody, request: Request) -> Response:
        return await answered(
            host,
            request,
            Call(body.model, body.stream is True, body.deadline_seconds),
            lambda model: model.prepare_chat(response_wanted(body)),
            lambda model, prepared: ResponseWriter(model, prepared, body),
        )

    return router


class ResponseWriter:
    """One response: its output items grow while the answer comes."""

    def __init__(self, model: ServedModel, prepared: Prepared, body: ResponsesBody) -> None:
        self._model = model
        self._prepared = prepared
        self._body = body
        self._id = f"resp_{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._items: list[Facts] = []
        self._open_kind: type[Part] | None = None
        self._num_events = 0

    async def whole(self) -> Facts:
        """The stream folded up: the response that its last event carries."""
        last: Facts = {}
        async with aclosing(answer_chunks(self._model, self._prepared)) as chunks:
            async for chunk in chunks:
                for event in self._of_chunk(chunk):
                    last = event
        response: Facts = last["response"]
        return response

    async def texts(self) -> AsyncGenerator[str, None]:
        has_begun = False
        try:
            async with aclosing(answer_chunks(self._model, self._prepared)) as chunks:
                async for chunk in chunks:
                    if not has_begun:
                        has_begun = True
                        yield self._written(self._event("response.created", response=self._response("in_progress")))
                        yield self._written(self._event("response.in_progress", response=self._response("in_progress")))
                    for event in self._of_chunk(chunk):
                        yield self._written(event)
        except Exception as error:
            if not has_begun:
                raise
            refusal = refusal_of(error)
            failure = {"code": refusal.code or refusal.kind, "message": refusal.message}
            yield self._written(self._event("response.failed", response=self._response("failed", error=failure)))

    def _of_chunk(self, chunk: Chunk) -> Iterator[Facts]:
        for part in chunk.parts:
            if self._open_kind is not _item_kind(part) or isinstance(part, CallStart):
                yield from self._close_item()
                yield from self._open_item(part)
            if not isinstance(part, CallStart):
                yield self._grow(part)
        if chunk.finish_reason is not None:
            yield from self._close_item()
            is_cut = chunk.finish_reason == "length"
            status = "incomplete" if is_cut else "completed"
            yield self._event(f"response.{status}", response=self._response(status, chunk.usage))

    def _open_item(self, part: Part) -> Iterator[Facts]:
        self._open_kind = _item_kind(part)
        item = _new_item(part)
        self._items.append(item)
        yield self._item_event("response.output_item.added", item=dict(item))
        if isinstance(part, Content):
            item["content"] = [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]
            yield self._item_event("response.content_part.added", content_index=0, part=dict(item["content"][0]))
        elif isinstance(part, Reasoning):
            item["content"] = [{"type": "reasoning_text", "text": ""}]

    def _grow(self, part: Part) -> Facts:
        assert not isinstance(part, CallStart)
        item = self._items[-1]
        if isinstance(part, CallArguments):
            item["arguments"] += part.text
            return self._item_event("response.function_call_arguments.delta", delta=part.text)
        item["content"][0]["text"] += part.text
        if isinstance(part, Reasoning):
            return self._item_event("response.reasoning_text.delta", content_index=0, delta=part.text)
        return self._item_event("response.output_text.delta", content_index=0, delta=part.text, logprobs=[])

    def _close_item(self) -> Iterator[Facts]:
        if self._open_kind is None:
            return
        kind, self._open_kind, item = self._open_kind, None, self._items[-1]
        if kind is CallStart:
            facts = {"name": item["name"], "arguments": item["arguments"]}
            yield self._item_event("response.function_call_arguments.done", **facts)
        else:
            content = item["content"][0]
            name = "output_text" if kind is Content else "reasoning_text"
            more: Facts = {"logprobs": []} if kind is Content else {}
            yield self._item_event(f"response.{name}.done", content_index=0, text=content["text"], **more)
            if kind is Content:
                yield self._item_event("response.content_part.done", content_index=0, part=content)
        item["status"] = "completed"
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _item_event(self, kind: str, **facts: Any) -> Facts:
        place: Facts = {"output_index": len(self._items) - 1}
        if not kind.startswith("response.output_item"):
            place["item_id"] = self._items[-1]["id"]
        return self._event(kind, **place, **facts)

    def _event(self, kind: str, **facts: Any) -> Facts:
        self._num_events += 1
        return {"type": kind, "sequence_number": self._num_events - 1, **facts}

    @staticmethod
    def _written(event: Facts) -> str:
        return sse(event, event["type"])

    def _response(self, status: str, usage: Usage | None = None, error: Facts | None = None) -> Facts:
        body, is_cut = self._body, status == "incomplete"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._model.name,
            "output": self._items,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "temperature": self._prepared.request.sampling.temperature,
            "top_p": self._prepared.request.sampling.top_p,
            "tools": [tool.model_dump() for tool in body.tools or ()],
            "tool_choice": body.tool_choice if isinstance(body.tool_choice, str) else "auto",
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "metadata": body.metadata or {},
            "store": False,
            "usage": None if usage is None else _usage(usage),
        }


def _item_kind(part: Part) -> type[Part]:
    """Arguments go on with the item of their call."""
    return CallStart if isinstance(part, CallArguments) else type(part)


def _new_item(part: Part) -> Facts:
    if isinstance(part, CallStart):
        ids = {"id": f"fc_{uuid.uuid4().hex}", "call_id": part.call_id or new_call_id()}
        return {"type": "function_call", **ids, "name": part.name, "arguments": "", "status": "in_progress"}
    if isinstance(part, Reasoning):
        return {"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": [], "status": "in_progress"}
    head = {"type": "message", "id": f"msg_{uuid.uuid4().hex}", "role": "assistant"}
    return {**head, "content": [], "status": "in_progress"}


def _usage(usage: Usage) -> Facts:
    return {
        "input_tokens": usage.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.num_cached_tokens},
        "output_tokens": usage.num_answer_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.num_prompt_tokens + usage.num_answer_tokens,
    }
