"""From a body to a response: the one way of all routes that answer, streamed or whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import JSONResponse, Response

from ktdesk.lossy import HEADER, as_words
from ktdesk.server.deadline import Deadline
from ktdesk.server.hosting import ModelHost
from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk.server.streaming import Format, StreamedResponse, first_then_rest, unless_gone


@dataclass(frozen=True)
class Call:
    """What all interfaces ask in the same way."""

    model: str | None
    """None: the server's own."""
    streams: bool
    deadline_seconds: float | None
    """From now to the last token. None: as long as the server allows."""


class Writer(Protocol):
    """Writes one answer as an interface has it."""

    def texts(self) -> AsyncGenerator[str, None]:
        """While it comes. What fails before the first is raised; after it, it is told in the interface's own way."""
        ...

    async def whole(self) -> dict[str, Any]: ...


async def answered(
    host: ModelHost,
    request: Request,
    call: Call,
    prepare: Callable[[ServedModel], Prepared],
    write: Callable[[ServedModel, Prepared], Writer],
    form: Format = "text/event-stream",
) -> Response:
    """prepare: renders the prompt, on a thread of its own."""
    deadline = Deadline(call.deadline_seconds, host.settings.deadline_seconds)
    model = await unless_gone(request, host.model(request.state.uses, call.model, deadline))
    prepared = await asyncio.to_thread(prepare, model)
    writer = write(model, replace(prepared, deadline=deadline))
    response: Response
    if call.streams:
        response = StreamedResponse(await unless_gone(request, first_then_rest(writer.texts())), form)
    else:
        response = JSONResponse(await unless_gone(request, writer.whole()))
    if model.changes:
        response.headers[HEADER] = as_words(model.changes)
    return response
