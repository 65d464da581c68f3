"""Who may ask, and how much: before a request is read.

A page in a browser can send requests to servers on this machine. So the Host header must be a name of this server
(a name that a stranger's DNS points here is none), and the Origin of a page must be one that was allowed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ktdesk.server.errors import Refusal
from ktdesk.server.failure_shapes import failure_response
from ktdesk.server.settings import LOOPBACK_NAMES, ServerSettings, is_loopback

OPEN_PATHS = frozenset({"/health"})
"""Without a key: they say nothing but whether the server is there."""


class TooLargeError(Exception):
    """The body is longer than it may be."""


class Guard:
    """Middleware around everything else."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._key_digest = None if settings.api_key is None else _digest(settings.api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await failure_response(scope["path"], refusal)(scope, receive, send)
            return
        await self._limited(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        if not self._is_own_name(headers.get("host", "")):
            return Refusal(403, "permission_error", "the Host header names another server: see --allow-host")
        if not self._is_own_page(headers):
            return Refusal(403, "permission_error", "pages of this origin may not use the server: see --cors-origin")
        is_open = scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS"
        if not is_open and not self._has_key(headers):
            return Refusal(401, "authentication_error", "the API key is missing or wrong", code="invalid_api_key")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            return self._too_large()
        return None

    def _is_own_name(self, host: str) -> bool:
        """Beyond loopback the key decides, unless names were given."""
        name = (urlsplit(f"//{host}").hostname or "") if host.isascii() and " " not in host else ""
        allowed = {*self._settings.allowed_hosts, *LOOPBACK_NAMES, self._settings.host}
        if name in allowed or is_loopback(name):
            return True
        return not self._settings.is_loopback and not self._settings.allowed_hosts and bool(name)

    def _is_own_page(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        return origin in self._settings.cors_origins or origin == f"http://{headers.get('host')}"

    def _has_key(self, headers: Headers) -> bool:
        """Digests are compared, in constant time: neither content nor length of the key shows."""
        if self._key_digest is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = headers.get("x-api-key", "")
        return hmac.compare_digest(_digest(given.strip()), self._key_digest)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts the body while it comes: its announced length may be missing or wrong."""
        num_bytes = 0

        def is_too_large() -> bool:
            return num_bytes > self._settings.max_body_bytes

        async def counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if is_too_large():
                raise TooLargeError
            return message

        async def checked(message: Message) -> None:
            if not is_too_large():
                await send(message)

        with contextlib.suppress(TooLargeError):
            await self._app(scope, counted, checked)
        if is_too_large():
            await failure_response(scope["path"], self._too_large())(scope, receive, send)

    def _too_large(self) -> Refusal:
        limit = self._settings.max_body_bytes
        return Refusal(413, "invalid_request_error", f"the body is larger than {limit} bytes", code="too_large")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
