"""`/ktdesk/...`: what `ktdesk run` and `ktdesk chat` ask a server of their own version; nobody else should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ktdesk.asking import Asked, LocalModel, request_of
from ktdesk.event_facts import facts_of
from ktdesk.options import AnswerOptions, SamplingOptions
from ktdesk.server.answers import answer_events
from ktdesk.server.errors import refusal_of
from ktdesk.server.hosting import ModelHost
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import ClientGoneError, StreamedResponse, first_then_rest, json_line, unless_gone
from ktdesk.server.strict import Body


class AnswerFields(Body):
    max_tokens: int | None
    stop: list[str] | None
    system: str | None
    think: bool | None


class SamplingFields(Body):
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None


class AskBody(Body):
    prompt: str | list[dict[str, str]]
    options: AnswerFields
    sampling: SamplingFields
    num_logprobs: int | None

    @property
    def asked(self) -> Asked:
        options, sampling = AnswerOptions(**self.options.model_dump()), SamplingOptions(**self.sampling.model_dump())
        return Asked(self.prompt, options, sampling, self.num_logprobs)


class TokensBody(Body):
    token_ids: list[int]


def own_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(prefix="/ktdesk", include_in_schema=False)

    @router.get("/model")
    async def show_model() -> dict[str, Any]:
        model = LocalModel(host.model(None).engine)
        sampling = asdict(model.recommended_sampling)
        return {"title": model.title, "context": model.context, "sampling": sampling, "config": model.config_facts}

    @router.post("/answer")
    async def answer(body: AskBody, request: Request) -> Response:
        model = host.model(None)
        try:
            prepared = await asyncio.to_thread(lambda: _prepared(model, body.asked))
            texts = await unless_gone(request, first_then_rest(_lines(model, prepared)))
        except ClientGoneError:
            raise
        except Exception as error:
            return JSONResponse(_failure(error), refusal_of(error).status)
        return StreamedResponse(texts, "application/x-ndjson")

    @router.post("/tokens")
    async def tokens(body: TokensBody) -> list[str]:
        return LocalModel(host.model(None).engine).token_texts(body.token_ids)

    return router


def _prepared(model: ServedModel, asked: Asked) -> Prepared:
    return model.bounded(request_of(model.engine, asked))


async def _lines(model: ServedModel, prepared: Prepared) -> AsyncGenerator[str, None]:
    has_begun = False
    try:
        async with aclosing(answer_events(model, prepared)) as events:
            async for event in events:
                has_begun = True
                yield json_line(facts_of(event)) + "\n"
    except Exception as error:
        if not has_begun:
            raise
        yield json_line(_failure(error)) + "\n"


def _failure(error: Exception) -> dict[str, Any]:
    """With the class, so that the client ends with the exit code that it would have without a server."""
    return {"error": type(error).__name__, "message": refusal_of(error).message}
