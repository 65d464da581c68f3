"""The HTTP client that huggingface_hub itself uses, so that proxies, certificates and hooks are the user's.

That is httpx2 for huggingface_hub 2, and httpx for 1: both look the same from here. This module and `repository`
are the only ones that import huggingface_hub, and they do it when they are needed: it takes a second.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

from ktdesk_wizard.errors import FetchError

DEFAULT_ENDPOINT = "https://huggingface.co"
CONNECT_SECONDS = 10.0


class Response(Protocol):
    """What we use of the client's."""

    status_code: int
    headers: Mapping[str, str]
    extensions: Mapping[str, Any]

    def iter_raw(self, chunk_size: int | None = None) -> Iterator[bytes]: ...
    def read(self) -> bytes: ...
    def json(self) -> Any: ...


class Http:
    def __init__(self) -> None:
        check_online()
        from huggingface_hub import get_session

        self._session: Any = get_session()
        self._module = _module_of(self._session)
        self.errors: tuple[type[Exception], ...] = (
            self._module.TransportError,
            self._module.DecodingError,
            self._module.StreamError,
        )
        """A connection that failed, was cut, or did not answer in time. No OSError: that is of our own disk."""

    def head(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> Response:
        """Follows no redirect."""
        return self._session.request(
            "HEAD", url, headers=dict(headers), timeout=self._timeout(timeout_seconds), follow_redirects=False
        )

    def get(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> Response:
        return self._session.request(
            "GET", url, headers=dict(headers), timeout=self._timeout(timeout_seconds), follow_redirects=True
        )

    @contextmanager
    def stream(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> Iterator[Response]:
        """timeout_seconds: without a single byte. Follows no redirect."""
        timeout = self._timeout(timeout_seconds)
        with self._session.stream(
            "GET", url, headers=dict(headers), timeout=timeout, follow_redirects=False
        ) as response:
            yield response

    def _timeout(self, seconds: float) -> Any:
        return self._module.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


def _module_of(session: Any) -> Any:
    """httpx2 or httpx: that of the session's class, or of the one that the user's own derives from."""
    for kind in type(session).__mro__:
        name = kind.__module__.partition(".")[0]
        if name.startswith("httpx"):
            return import_module(name)
    raise FetchError(f"huggingface_hub's client is a {type(session).__name__}, which ktdesk cannot use: reset it")


def hang_up(response: Response) -> None:
    """Ends a transfer from another thread: who waits for its bytes gets an error at once."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(connection, socket.socket):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def endpoint() -> str:
    """Of the hub: HF_ENDPOINT, read now."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def is_offline() -> bool:
    wish = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return wish.upper() in ("1", "ON", "YES", "TRUE")


def check_online() -> None:
    if is_offline():
        raise FetchError("HF_HUB_OFFLINE is set, so nothing is asked of the network: unset it to fetch")
