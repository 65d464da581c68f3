"""`/`, `/health`, `/metrics`, `/tokenize`, `/detokenize`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ktdesk.server.errors import BadRequestError
from ktdesk.server.hosting import ModelHost
from ktdesk.server.metrics import Metrics
from ktdesk.server.places import Health
from ktdesk.server.streaming import unless_gone
from ktdesk.server.strict import Body, Object
from ktdesk.server.wanted import ChatWanted


class TokenizeBody(Body):
    """Either a text or the messages of a conversation."""

    model: str | None = None
    text: str | None = None
    messages: list[Object] | None = Field(None, min_length=1)
    add_special: bool = Field(True, description="Begin a text with BOS if the model does.")


class DetokenizeBody(Body):
    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]


def plain_routes(host: ModelHost, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["Server"])

    @router.head("/", include_in_schema=False)
    @router.get("/", operation_id="root", response_class=PlainTextResponse)
    async def root() -> Response:
        """For clients that look whether somebody is there before they ask, as Ollama's do."""
        return PlainTextResponse("ktdesk is running\n")

    @router.get("/health", operation_id="health")
    async def health() -> Response:
        now = host.health
        facts: dict[str, Any] = {"status": now.stage, "model": host.name, "percent": round(now.percent, 1)}
        if now.reason is not None:
            facts["reason"] = now.reason
        facts["models"] = [_health_facts(name, one) for name, one in host.healths.items()]
        status = {"ready": 200, "failed": 500}.get(now.stage, 503)
        return JSONResponse(facts, status)

    @router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        numbers = {model.name: model.answers.numbers() for model in host.models}
        return PlainTextResponse(
            metrics.text(numbers, host.num_in_line), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @router.post("/tokenize", operation_id="tokenize")
    async def tokenize(body: TokenizeBody, request: Request) -> dict[str, Any]:
        if (body.text is None) == (body.messages is None):
            raise BadRequestError("give either text or messages")
        model = await unless_gone(request, host.model(request.state.uses, body.model))
        if body.messages is not None:
            messages = body.messages
            prepared = await asyncio.to_thread(lambda: model.prepare_chat(ChatWanted(messages)))
            ids = list(prepared.request.token_ids)
        else:
            assert body.text is not None
            text, tokenizer = body.text, model.engine.tokenizer
            adds_bos = body.add_special and tokenizer.adds_bos
            ids = await asyncio.to_thread(lambda: tokenizer.encode(text, add_bos=adds_bos))
        return {"tokens": ids, "count": len(ids), "max_model_len": model.context}

    @router.post("/detokenize", operation_id="detokenize")
    async def detokenize(body: DetokenizeBody, request: Request) -> dict[str, Any]:
        model = await unless_gone(request, host.model(request.state.uses, body.model))
        tokenizer = model.engine.tokenizer
        return {"text": await asyncio.to_thread(lambda: tokenizer.decode(body.tokens))}

    return router


def _health_facts(name: str, health: Health) -> dict[str, Any]:
    return {"name": name, "stage": health.stage, "percent": round(health.percent, 1), "reason": health.reason}
