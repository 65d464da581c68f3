"""`/v1/completions`: text that goes on from text. And `/v1/models`."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ktdesk.server.answering import Call, answered
from ktdesk.server.answers import Usage, WholeAnswer, several_answers
from ktdesk.server.errors import refusal_of
from ktdesk.server.failure_shapes import openai_failure
from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModel
from ktdesk.server.openai_chat import logprob_facts, usage_facts, wants_usage
from ktdesk.server.openai_chat_types import CompletionBody
from ktdesk.server.openai_wishes import text_wanted
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import sse, streamed_or_whole
from ktdesk_engine.chat.parsing.parts import Content
from ktdesk_engine.sampler import TokenLogprobs


def completion_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", operation_id="complete", responses=streamed_or_whole("text/event-stream"))
    async def complete(body: CompletionBody, request: Request) -> Response:
        return await answered(
            host,
            request,
            Call(body.model, body.stream is True, body.deadline_seconds),
            lambda model: model.prepare_text(text_wanted(body)),
            lambda model, prepared: Completion(model, prepared, body),
        )

    @router.get("/v1/models", operation_id="list_models")
    async def list_models() -> dict[str, Any]:
        known = await asyncio.to_thread(host.known.all)
        return {"object": "list", "data": [_model_facts(host, model) for model in known]}

    @router.get("/v1/models/{name:path}", operation_id="show_model")
    async def show_model(name: str) -> dict[str, Any]:
        return _model_facts(host, await asyncio.to_thread(host.known.find, name))

    return router


def _model_facts(host: ModelHost, known: KnownModel) -> dict[str, Any]:
    """status: `on disk` is loaded for who asks for it. context_length and changes (settings that make another
    network of it): of the model in memory."""
    health, loaded = host.health_of(known), host.loaded(known)
    facts = {"id": known.name, "object": "model", "owned_by": "ktdesk", "created": int(known.modified)}
    status = "on disk" if health is None else health.stage
    if loaded is None:
        return {**facts, "status": status, "context_length": None}
    changes = {"changes": loaded.changes} if loaded.changes else {}
    return {**facts, "status": status, "context_length": loaded.context, **loaded.engine_facts, **changes}


class Completion:
    """One text completion, of one or more choices."""

    def __init__(self, model: ServedModel, prepared: Prepared, body: CompletionBody) -> None:
        self._model = model
        self._prepared = prepared
        self._num_choices = body.n or 1
        self._with_usage = wants_usage(body)
        head = {"id": f"cmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model.name}
        self._head = {**head, "object": "text_completion"}

    async def whole(self) -> dict[str, Any]:
        answers = [WholeAnswer() for _ in range(self._num_choices)]
        async with aclosing(several_answers(self._model, self._prepared, self._num_choices)) as chunks:
            async for index, chunk in chunks:
                answers[index].add(chunk)
        usage = sum((answer.usage for answer in answers), Usage())
        choices = [
            self._choice(index, answer.content, answer.logprobs, answer.finish_reason)
            for index, answer in enumerate(answers)
        ]
        return {**self._head, "choices": choices, "usage": usage_facts(usage)}

    async def texts(self) -> AsyncGenerator[str, None]:
        usage, has_begun = Usage(), False
        try:
            async with aclosing(several_answers(self._model, self._prepared, self._num_choices)) as chunks:
                async for index, chunk in chunks:
                    has_begun = True
                    usage = usage + (chunk.usage or Usage())
                    text = "".join(part.text for part in chunk.parts if isinstance(part, Content))
                    choice = self._choice(index, text, chunk.logprobs, chunk.finish_reason)
                    yield sse({**self._head, "choices": [choice], **({"usage": None} if self._with_usage else {})})
        except Exception as error:
            if not has_begun:
                raise
            yield sse(openai_failure(refusal_of(error)))
            return
        if self._with_usage:
            yield sse({**self._head, "choices": [], "usage": usage_facts(usage)})
        yield "data: [DONE]\n\n"

    def _choice(self, index: int, text: str, logprobs: Iterable[TokenLogprobs], reason: str | None) -> dict[str, Any]:
        has_logprobs = self._prepared.request.num_logprobs is not None
        shown = self._logprobs(logprobs) if has_logprobs else None
        return {"index": index, "text": text, "logprobs": shown, "finish_reason": reason}

    def _logprobs(self, entries: Iterable[TokenLogprobs]) -> dict[str, Any]:
        facts = [logprob_facts(self._model.engine.tokenizer, entry) for entry in entries]
        return {
            "tokens": [fact["token"] for fact in facts],
            "token_logprobs": [fact["logprob"] for fact in facts],
            "top_logprobs": [{top["token"]: top["logprob"] for top in fact["top_logprobs"]} for fact in facts],
            "text_offset": None,
        }
