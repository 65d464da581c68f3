"""A model that a server of this machine has: asked over HTTP, as `run` and `chat` ask one of their own."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlsplit

from ktdesk.asking import Asked
from ktdesk.errors import ServerGoneError
from ktdesk.event_facts import event_of
from ktdesk_engine import errors as engine_errors
from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import SamplingConfig

CONNECT_SECONDS = 10.0


class ServerModel:
    """What a server has loaded. An error is the one that the engine had there."""

    def __init__(self, url: str, api_key: str | None = None, name: str | None = None) -> None:
        """name: of one of several models; None: the server's own."""
        self.url = url
        self._name = name
        self._address = urlsplit(url).netloc
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._facts = self._ask("GET", "/ktdesk/model" + ("" if name is None else f"?name={quote(name)}"))

    @property
    def title(self) -> str:
        return str(self._facts["title"])

    @property
    def context(self) -> int:
        return int(self._facts["context"])

    @property
    def recommended_sampling(self) -> SamplingConfig:
        facts = dict(self._facts["sampling"])
        facts["logit_bias"] = tuple(map(tuple, facts["logit_bias"]))
        return SamplingConfig(**facts)

    @property
    def config_facts(self) -> dict[str, Any]:
        return dict(self._facts["config"])

    @property
    def engine_note(self) -> str | None:
        note = self._facts["engine_note"]
        return None if note is None else str(note)

    def stream(self, asked: Asked) -> Generator[StreamEvent, None, None]:
        """Closing it closes the connection, which cancels."""
        with closing(self._connect()) as connection:
            for facts in self._lines(connection, asked):
                if "error" in facts:
                    raise _error_of(facts)
                event = event_of(facts)
                yield event
                if event.finish_reason is not None:
                    return
        raise self._gone()

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        texts = self._ask("POST", "/ktdesk/tokens", {"token_ids": list(token_ids), "model": self._name})
        return [str(text) for text in texts]

    def _lines(self, connection: http.client.HTTPConnection, asked: Asked) -> Iterator[dict[str, Any]]:
        try:
            body = {**asdict(asked), "model": self._name}
            yield from map(json.loads, self._send(connection, "POST", "/ktdesk/answer", body))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._gone() from error

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        with closing(self._connect()) as connection:
            try:
                return json.loads(self._send(connection, method, path, body).read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._gone() from error

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object = None
    ) -> http.client.HTTPResponse:
        connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _error_of(json.loads(response.read()))
        return response

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._address, timeout=CONNECT_SECONDS)
        connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(None)  # a long prompt is silent for as long as it takes
        return connection

    def _gone(self) -> ServerGoneError:
        return ServerGoneError(f"the server at {self.url} ended before the answer did: see `ktdesk logs`, or ask again")


def _error_of(facts: dict[str, Any]) -> Exception:
    """The engine's error of that name; for what the server itself refused, a RequestError."""
    told = facts["error"]
    if isinstance(told, dict):  # refused before a route was reached
        return engine_errors.RequestError(str(told["message"]))
    kind = getattr(engine_errors, str(told), None)
    if kind in (engine_errors.BusyError, engine_errors.ModelFileError, engine_errors.MissingShardError, None):
        kind = engine_errors.RequestError  # what takes more than a message
    error: Exception = kind(str(facts["message"]))
    return error
