"""Errors in the shape of the interface that was asked."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse

from ktdesk.server.errors import Refusal

ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def failure_body(path: str, refusal: Refusal) -> dict[str, Any]:
    if path.startswith("/v1/messages"):
        return anthropic_failure(refusal)
    if path.startswith("/api/"):
        return {"error": refusal.message}
    return openai_failure(refusal)


def openai_failure(refusal: Refusal) -> dict[str, Any]:
    return {
        "error": {
            "message": refusal.message,
            "type": refusal.kind,
            "param": refusal.param,
            "code": refusal.code,
        }
    }


def anthropic_failure(refusal: Refusal) -> dict[str, Any]:
    kind = ANTHROPIC_KINDS.get(refusal.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refusal.message}}


def failure_response(path: str, refusal: Refusal) -> JSONResponse:
    headers = {}
    if refusal.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after_seconds)))
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(failure_body(path, refusal), refusal.status, headers)
