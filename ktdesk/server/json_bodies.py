"""Bodies that are JSON but are not called so: `curl -d` calls all it sends a form, and no route here takes one."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

JSON = "application/json"
NOT_SAID = frozenset({"", "application/x-www-form-urlencoded"})


class JsonBodies:
    """Middleware. Pages of strangers, which could send a form unasked, the guard has refused by their origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            scope = {**scope, "headers": list(scope["headers"])}
            headers = MutableHeaders(scope=scope)
            if headers.get("content-type", "").partition(";")[0].strip().lower() in NOT_SAID:
                headers["content-type"] = JSON
        await self._app(scope, receive, send)
