"""One answer of a chat, asked of a server and read as it comes. Knows no screen and stores nothing."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ktdesk.errors import AnswerRefusedError, ServerGoneError

CONNECT_SECONDS = 10.0
SHUT_DOWN = "the server ended before the answer did"


@dataclass(frozen=True)
class CallDelta:
    """What one event adds to a tool call."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Delta:
    """What one event adds to an answer."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()


@dataclass(frozen=True)
class AnswerEnd:
    """The last of a stream, with what the server measured."""

    finish_reason: str
    num_prompt_tokens: int = 0
    num_answer_tokens: int = 0
    num_cached_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


class ChatStream:
    """Iterating asks and yields deltas, then one AnswerEnd. `stop` may be called from any thread."""

    def __init__(self, url: str, api_key: str | None, body: Mapping[str, Any]) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self.is_stopped = False

    def __iter__(self) -> Iterator[Delta | AnswerEnd]:
        """Ends without an AnswerEnd where it was stopped. Raises AnswerRefusedError and ServerGoneError."""
        try:
            yield from self._read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self.is_stopped:
                raise ServerGoneError(SHUT_DOWN) from error
        finally:
            self.stop()

    def stop(self) -> None:
        """Closing the connection cancels the answer at the server."""
        with self._lock:
            self.is_stopped = True
            opened, self._socket = self._socket, None
        if opened is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _read(self) -> Iterator[Delta | AnswerEnd]:
        with closing(self._connected()) as connection, self._send(connection) as response:
            yield from self._events(response)

    def _events(self, response: http.client.HTTPResponse) -> Iterator[Delta | AnswerEnd]:
        reason = None
        for line in _lines(response):
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                return
            facts = json.loads(line[6:])
            if "error" in facts:
                raise _refusal(facts)
            for choice in facts["choices"]:
                reason = choice["finish_reason"] or reason
                if choice["delta"]:
                    yield _delta(choice["delta"])
            if facts.get("usage"):
                yield _end(reason or "stop", facts)
        if not self.is_stopped:
            raise ServerGoneError(SHUT_DOWN)

    def _connected(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=CONNECT_SECONDS)
        connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(None)  # a long prompt is silent for as long as it takes
        with self._lock:
            if self.is_stopped:
                connection.close()
                raise ConnectionAbortedError
            self._socket = connection.sock
        return connection

    def _send(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        # Lone surrogates, as a broken file of text may hold, are no UTF-8: they are sent as question marks.
        body = json.dumps(self._body, ensure_ascii=False).encode("utf-8", "replace")
        connection.request("POST", "/v1/chat/completions", body, self._headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _refusal(json.loads(response.read()))
        return response


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """As they come. Reading by line costs three times as much: it looks at each chunk several times."""
    rest = b""
    while data := response.read1(65_536):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    yield rest


def num_prompt_tokens(url: str, api_key: str | None, messages: Sequence[Mapping[str, Any]]) -> int:
    """How many tokens a conversation has, as the server counts them."""
    headers = {"Content-Type": "application/json"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=CONNECT_SECONDS)
    try:
        body = json.dumps({"messages": list(messages)}, ensure_ascii=False).encode("utf-8", "replace")
        connection.request("POST", "/tokenize", body, headers)
        response = connection.getresponse()
        facts = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerGoneError(SHUT_DOWN) from error
    finally:
        connection.close()
    if response.status != 200:
        raise _refusal(facts)
    return int(facts["count"])


def _delta(facts: Mapping[str, Any]) -> Delta:
    calls = tuple(
        CallDelta(
            call["index"], call.get("id", ""), call["function"].get("name", ""), call["function"].get("arguments", "")
        )
        for call in facts.get("tool_calls", ())
    )
    return Delta(facts.get("content") or "", facts.get("reasoning_content") or "", calls)


def _end(reason: str, facts: Mapping[str, Any]) -> AnswerEnd:
    usage, timings = facts["usage"], facts.get("timings") or {}
    details = usage.get("prompt_tokens_details") or {}
    return AnswerEnd(
        reason,
        usage["prompt_tokens"],
        usage["completion_tokens"],
        details.get("cached_tokens", 0),
        timings.get("prefill_seconds", 0.0),
        timings.get("decode_seconds", 0.0),
    )


def _refusal(facts: Mapping[str, Any]) -> AnswerRefusedError:
    told = facts.get("error")
    message = told.get("message") if isinstance(told, dict) else facts.get("message", told)
    code = told.get("code") if isinstance(told, dict) else None
    return AnswerRefusedError(str(message), None if code is None else str(code))
