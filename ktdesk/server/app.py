"""The application: all routes, their errors, and what stands before them."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import ExitStack
from importlib import metadata
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ktdesk.server.anthropic_messages import anthropic_routes
from ktdesk.server.body_refusals import KIND, UNREADABLE, refusal_of_body
from ktdesk.server.errors import ApiError, Refusal, refusal_of
from ktdesk.server.failure_shapes import failure_response
from ktdesk.server.guard import Guard
from ktdesk.server.hosting import ModelHost
from ktdesk.server.json_bodies import JsonBodies
from ktdesk.server.metrics import Metrics
from ktdesk.server.ollama import ollama_routes
from ktdesk.server.openai_chat import chat_routes
from ktdesk.server.openai_completions import completion_routes
from ktdesk.server.own_routes import own_routes
from ktdesk.server.plain_routes import plain_routes
from ktdesk.server.responses import responses_routes
from ktdesk.server.settings import ServerSettings
from ktdesk.server.streaming import ClientGoneError
from ktdesk_engine.errors import EngineError

log = logging.getLogger("ktdesk.server")
CLIENT_GONE = 499
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": {"application/json": {"schema": {"type": "object"}}}}
    for status, meaning in {
        400: "The request cannot be served as asked",
        401: "The API key is missing or wrong",
        403: "The Host or the Origin is not allowed",
        404: "There is no such model",
        413: "The body is too large",
        429: "Busy: see Retry-After",
        500: "The engine failed",
        503: "The model still loads, or the server stops",
        504: "The deadline passed",
    }.items()
}


def make_app(host: ModelHost, settings: ServerSettings, metrics: Metrics) -> ASGIApp:
    app = FastAPI(
        title="ktdesk",
        version=metadata.version("ktdesk"),
        responses=FAILURES,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    for routes in (chat_routes, completion_routes, responses_routes, anthropic_routes, ollama_routes):
        app.include_router(routes(host))
    app.include_router(plain_routes(host, metrics))
    app.include_router(own_routes(host))
    _tell_failures(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    return Guard(JsonBodies(Counted(app, metrics)), settings)


def _tell_failures(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return failure_response(request.url.path, refusal_of_body(error))

    @app.exception_handler(HTTPException)
    async def http_failure(request: Request, error: HTTPException) -> Response:
        is_body = isinstance(error.__cause__, (ValueError, RecursionError))  # FastAPI reads it, and says no more
        message = UNREADABLE if is_body else str(error.detail)
        response = failure_response(request.url.path, Refusal(error.status_code, KIND, message))
        response.headers.update(error.headers or {})
        return response

    async def failed(request: Request, error: Exception) -> Response:
        refusal = refusal_of(error)
        if refusal.status == 500:
            log.error("%s failed", request.url.path, exc_info=error)
        return failure_response(request.url.path, refusal)

    for kind in (ApiError, EngineError, MemoryError, Exception):
        app.add_exception_handler(kind, failed)

    @app.exception_handler(ClientGoneError)
    async def gone(request: Request, error: ClientGoneError) -> Response:
        return Response(status_code=CLIENT_GONE)


class Counted:
    """Counts requests, and notes which models each uses (`request.state.uses`)."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, started = 0, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._metrics.num_open += 1
        try:
            with ExitStack() as uses:
                scope.setdefault("state", {})["uses"] = uses
                await self._app(scope, receive, noted)
        except asyncio.CancelledError:  # the server ends, and has waited for long enough
            if not status:
                refusal = Refusal(503, "unavailable", "the server stopped before the answer was done", code="stopping")
                await failure_response(scope["path"], refusal)(scope, receive, noted)
        except Exception:
            if status != 500:
                raise  # the client has half of an answer: let the connection break
            # else it was told and logged already
        finally:
            self._metrics.num_open -= 1
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.finished(route, status or CLIENT_GONE, time.perf_counter() - started)
