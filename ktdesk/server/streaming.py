"""Responses that are written while the answer comes, and work that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Literal, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

Result = TypeVar("Result")
Format = Literal["text/event-stream", "application/x-ndjson"]


def streamed_or_whole(media_type: Format) -> dict[int | str, dict[str, Any]]:
    """For the description of a route whose answers come in two ways."""
    shape: dict[str, Any] = {"schema": {"type": "object"}}
    text: dict[str, Any] = {"schema": {"type": "string"}}
    return {200: {"description": "Whole, or streamed", "content": {"application/json": shape, media_type: text}}}


class ClientGoneError(Exception):
    """The client closed the connection before its answer was there."""


def json_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sse(value: object, event: str | None = None) -> str:
    """One server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json_line(value)}\n\n"


class StreamedResponse(Response):
    """Sends texts as they come. Closes their generator as soon as the client is gone."""

    def __init__(self, texts: AsyncGenerator[str, None], media_type: Format) -> None:
        super().__init__(media_type=f"{media_type}; charset=utf-8", headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._texts = texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, leaving):
                task.cancel()
            results = await asyncio.gather(writing, leaving, return_exceptions=True)
        if isinstance(results[0], Exception) and not isinstance(results[0], OSError):
            raise results[0]

    async def _write(self, send: Send) -> None:
        async with aclosing(self._texts) as texts:
            async for text in texts:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work, which is cancelled when the client is gone."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    return working.result()


async def _disconnect(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_then_rest(texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same texts, but the first is waited for here, so that what fails before it is a plain error."""
    try:
        first = await anext(texts)
    except StopAsyncIteration:
        first = ""
    except BaseException:
        await texts.aclose()
        raise

    async def all_texts() -> AsyncGenerator[str, None]:
        async with aclosing(texts):
            yield first
            async for text in texts:
                yield text

    return all_texts()
