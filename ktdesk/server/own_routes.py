"""`/ktdesk/...`: what `ktdesk run` and `ktdesk chat` ask a server of their own version; nobody else should."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ktdesk.asking import Asked, LocalModel, request_of
from ktdesk.event_facts import facts_of
from ktdesk.options import AnswerOptions, SamplingOptions
from ktdesk.server.answering import Call, answered
from ktdesk.server.answers import answer_events
from ktdesk.server.errors import refusal_of
from ktdesk.server.hosting import ModelHost
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import ClientGoneError, json_line
from ktdesk.server.strict import Body
from ktdesk.server.wanted import ChatWanted
from ktdesk_engine.engine import Engine
from ktdesk_engine.expert_half import ExpertHalf


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
    model: str | None = None
    """None: the server's own, here and below."""

    @property
    def asked(self) -> Asked:
        options, sampling = AnswerOptions(**self.options.model_dump()), SamplingOptions(**self.sampling.model_dump())
        return Asked(self.prompt, options, sampling, self.num_logprobs)


class TokensBody(Body):
    token_ids: list[int]
    model: str | None = None


NO_EXPERTS: dict[str, Any] = {"rates": [], "resident": None}


def expert_facts(half: ExpertHalf) -> dict[str, Any]:
    assert half.use is not None
    mask = half.resident_mask
    return {
        "rates": half.use.seen().round(1).tolist(),
        "resident": None if mask is None else mask.tolist(),
        "blocks": half.blocks,
        "fixed_layers": list(half.fixed_layers),
        "slot_bytes": half.slot_bytes,
    }


def own_routes(host: ModelHost) -> APIRouter:
    router = APIRouter(prefix="/ktdesk", include_in_schema=False)

    @router.get("/model")
    async def show_model(request: Request, name: str | None = None) -> dict[str, Any]:
        model = LocalModel((await host.model(request.state.uses, name)).engine)
        sampling = asdict(model.recommended_sampling)
        return {
            "title": model.title,
            "context": model.context,
            "sampling": sampling,
            "config": model.config_facts,
            "engine_note": model.engine_note,
        }

    @router.get("/models")
    async def show_models() -> dict[str, Any]:
        """Where the files lie of those in memory."""
        return {"models": [{"name": one.name, "path": str(one.path.absolute())} for one in host.in_memory]}

    @router.get("/experts")
    async def show_experts(request: Request) -> dict[str, Any]:
        """How often each was used lately, (L, E), which lie on an accelerator, and what their places depend on; no
        rates where nothing counts them."""
        model = host.held(request.state.uses, host.known.own)
        half = model.engine.experts if model is not None and isinstance(model.engine, Engine) else None
        return NO_EXPERTS if half is None or half.use is None else expert_facts(half)

    @router.post("/answer")
    async def answer(body: AskBody, request: Request) -> Response:
        call = Call(body.model, True, None)
        try:
            return await answered(
                host, request, call, lambda model: _prepared(model, body.asked), EventWriter, "application/x-ndjson"
            )
        except ClientGoneError:
            raise
        except Exception as error:
            return JSONResponse(_failure(error), refusal_of(error).status)

    @router.post("/tokens")
    async def tokens(body: TokensBody, request: Request) -> list[str]:
        model = await host.model(request.state.uses, body.model)
        return LocalModel(model.engine).token_texts(body.token_ids)

    return router


def _prepared(model: ServedModel, asked: Asked) -> Prepared:
    request, messages = request_of(model.engine, asked), asked.prompt
    if isinstance(messages, str):
        return model.bounded(request, None)
    return model.bounded(request, ChatWanted(messages, variables=asked.options.variables))


class EventWriter:
    """The engine's own events, a line each."""

    def __init__(self, model: ServedModel, prepared: Prepared) -> None:
        self._model = model
        self._prepared = prepared

    async def texts(self) -> AsyncGenerator[str, None]:
        has_begun = False
        try:
            async with aclosing(answer_events(self._model, self._prepared)) as events:
                async for event in events:
                    has_begun = True
                    yield json_line(facts_of(event)) + "\n"
        except Exception as error:
            if not has_begun:
                raise
            yield json_line(_failure(error)) + "\n"

    async def whole(self) -> dict[str, Any]:
        raise AssertionError("run and chat stream")


def _failure(error: Exception) -> dict[str, Any]:
    """With the class, so that the client ends with the exit code that it would have without a server."""
    return {"error": type(error).__name__, "message": refusal_of(error).message}
