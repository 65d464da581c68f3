"""What a server answers to a plain GET: for those who look how it is."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit


def body_of(url: str, path: str, timeout_seconds: float, api_key: str | None = None) -> tuple[int, bytes] | None:
    """Status and body; None where it does not answer."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_seconds)) as connection:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None


def facts_of(url: str, path: str, timeout_seconds: float, api_key: str | None = None) -> dict[str, Any] | None:
    """A JSON object, whatever the status; None where it does not answer, or something else."""
    answer = body_of(url, path, timeout_seconds, api_key)
    try:
        facts = json.loads(answer[1]) if answer is not None else None
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None
