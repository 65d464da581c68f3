"""What goes wrong with a request, with its HTTP status. Each interface writes it in its own shape.

ApiError
├── NotFoundError      404: no such model
├── NotReadyError      503: the model still loads, or the server stops
│   └── NotYetError    503: other models have their turn
└── BadRequestError    400: the request cannot be served as asked
"""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.errors import (
    BusyError,
    ConfigError,
    ContextOverflowError,
    DeadlineError,
    EngineError,
    RequestError,
    StoppingError,
    UnsupportedError,
)


class ApiError(Exception):
    """Base of all errors that a client is told."""

    status = 500
    kind = "server_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds: float | None = None


class BadRequestError(ApiError):
    """The request cannot be served as asked."""

    status = 400
    kind = "invalid_request_error"


class NotFoundError(ApiError):
    """There is no such model."""

    status = 404
    kind = "invalid_request_error"


class NotReadyError(ApiError):
    """Not now: the model still loads, or the server stops."""

    status = 503
    kind = "unavailable"


class NotYetError(NotReadyError):
    """Other models have their turn: who waits may get one."""


def not_now(message: str, code: str, retry_after_seconds: float | None = None) -> NotReadyError:
    """With when to ask again."""
    error = NotReadyError(message, code=code)
    error.retry_after_seconds = retry_after_seconds or 1.0
    return error


def not_yet(message: str, code: str, retry_after_seconds: float | None = None) -> NotYetError:
    """The same, where waiting helps."""
    error = NotYetError(message, code=code)
    error.retry_after_seconds = retry_after_seconds or 1.0
    return error


@dataclass(frozen=True)
class Refusal:
    """An error on its way to a client."""

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_seconds: float | None = None


def refusal_of(error: Exception) -> Refusal:
    """What a client is told of an error."""
    if isinstance(error, ApiError):
        return Refusal(error.status, error.kind, error.message, error.param, error.code, error.retry_after_seconds)
    message = " ".join(str(error).split())
    if isinstance(error, BusyError):
        return Refusal(429, "rate_limit_error", message, None, "busy", error.retry_after_seconds)
    if isinstance(error, DeadlineError):
        return Refusal(504, "timeout", message, code="deadline")
    if isinstance(error, StoppingError):
        return Refusal(503, "unavailable", message, code="stopping")
    if isinstance(error, ContextOverflowError):
        return Refusal(400, "invalid_request_error", message, "messages", "context_length_exceeded")
    if isinstance(error, (RequestError, ConfigError, UnsupportedError)):
        return Refusal(400, "invalid_request_error", message)
    if isinstance(error, (EngineError, MemoryError)):
        return Refusal(500, "server_error", message or "out of memory")
    return Refusal(500, "server_error", "an error nobody expected; the server's log has more", code="unexpected")
