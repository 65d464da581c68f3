"""The model that an app talks to: which server has it, and how far that server is. Knows no screen."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ktdesk.errors import AppError
from ktdesk.options import EngineOptions, changed_options
from ktdesk.server_answers import facts_of
from ktdesk.server_records import ServerRecord, running_servers, stop_server
from ktdesk.settings import KEY_VARIABLE, Settings
from ktdesk.starting import StartedServer, only_starter

LOOK_SECONDS = 5.0
"""A server that does not say how it is for so long is gone."""
KEEP_ALIVE_SECONDS = 600.0
Stage = Literal["none", "starting", "loading", "ready", "failed", "gone"]


@dataclass(frozen=True)
class LinkState:
    """What can be said of the model now."""

    stage: Stage = "none"
    model: str = ""
    url: str = ""
    path: str = ""
    percent: float = 0.0
    reason: str = ""
    """Why it is not there, where it failed or went away."""
    context: int = 0
    """Tokens; 0 until it is ready."""

    @property
    def is_ready(self) -> bool:
        return self.stage == "ready"

    @property
    def is_waiting(self) -> bool:
        return self.stage in ("starting", "loading")


class ModelLink:
    """Attaches to a server of this user, or starts one. All but `state` block: not for an event loop."""

    def __init__(self, settings: Settings, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self._settings = settings
        self._keep_alive_seconds = keep_alive_seconds
        self._record: ServerRecord | None = None
        self._started: StartedServer | None = None
        self._turn = 0
        self._lock = threading.Lock()
        self.options = EngineOptions()
        self.state = LinkState()

    @property
    def api_key(self) -> str | None:
        return os.environ.get(KEY_VARIABLE) if self._record is not None and self._record.needs_key else None

    @property
    def record(self) -> ServerRecord | None:
        """Of the server; None until there is one."""
        return self._record

    def servers(self) -> list[ServerRecord]:
        return running_servers(self._settings)

    def attach(self, record: ServerRecord) -> LinkState:
        """To a server that runs, whoever started it."""
        with self._lock:
            self._turn += 1
            self._forget_started()
            self._record = record
            self.options = EngineOptions()
            self.state = LinkState("loading", record.model, record.url, record.path)
        return self.look()

    def attach_if_any(self) -> LinkState:
        """To the server that was started last, if one runs that is not for one client alone."""
        records = sorted(filter(lambda record: record.is_for_all, self.servers()), key=lambda record: record.started)
        return self.attach(records[-1]) if records else self.state

    def start(self, path: Path, options: EngineOptions | None = None, *, guards_memory: bool = True) -> LinkState:
        """A server with this model, unless one runs that has it. Returns as soon as it listens, or failed to.

        guards_memory: refuse it where it would not fit into memory."""
        with self._lock:
            self._turn += 1
            turn = self._turn
            self._forget_started()
            self._record = None
            self.options = options or EngineOptions()
            self.state = LinkState("starting", path.name.removesuffix(".gguf"), path=str(path))
        try:
            return self._start(path, turn, guards_memory=guards_memory)
        except (AppError, OSError) as error:
            return self._fail(turn, str(error))

    def look(self) -> LinkState:
        """Asks the server how it is."""
        record, turn = self._record, self._turn
        if record is None:
            return self.state
        facts = facts_of(record.url, "/health", LOOK_SECONDS)
        seen = self._seen(record, facts)
        with self._lock:
            if turn == self._turn:
                self.state = seen
        return self.state

    def leave(self) -> LinkState:
        """Forgets the model. A server that still loads, and was started here, is stopped."""
        with self._lock:
            self._turn += 1
            if self.state.is_waiting and self._started is not None:
                with suppress(OSError):
                    self._started.stop()
            self._forget_started()
            self._record = None
            self.state = LinkState()
        return self.state

    def stop_server(self, limit_seconds: float = 20.0) -> LinkState:
        """Ends the server that has the model."""
        record = self._record
        if record is not None and record.is_alive:
            stop_server(record, limit_seconds)
        return self.leave()

    def restart(self) -> LinkState:
        """The same model again, after its server failed or went away."""
        return self.start(Path(self.state.path), self.options)

    def _start(self, path: Path, turn: int, *, guards_memory: bool) -> LinkState:
        with only_starter(self._settings):
            record = self._fitting(path)
            if record is None:
                more = () if guards_memory else ("--no-memory-guard",)
                started = StartedServer(path, self._settings, self.options, self._keep_alive_seconds, more)
                with self._lock:
                    if turn != self._turn:  # somebody left meanwhile
                        started.stop()
                        return self.state
                    self._started = started
                record = started.record()
        with self._lock:
            if turn != self._turn:
                return self.state
            self._record = record
        return self.look()

    def _fitting(self, path: Path) -> ServerRecord | None:
        wanted = changed_options(self.options)
        for record in self.servers():
            is_fit = record.changed == wanted if wanted else record.is_for_all
            with suppress(OSError):
                if is_fit and os.path.samefile(path, record.path) and not record.needs_key:
                    return record
        return None

    def _seen(self, record: ServerRecord, facts: dict[str, Any] | None) -> LinkState:
        now = replace(self.state, model=record.model, url=record.url, path=record.path)
        if facts is None:
            return now if record.is_alive and now.is_waiting else replace(now, stage="gone", reason=self._last_words())
        stage, percent = str(facts.get("status")), float(facts.get("percent", 0.0))
        if stage == "ready":
            context = now.context or self._context(record)
            return replace(now, stage="ready", percent=100.0, reason="", context=context)
        if stage == "loading":
            return replace(now, stage="loading", percent=percent, reason="")
        if stage == "failed":
            return replace(now, stage="failed", reason=str(facts.get("reason", "it did not say why")))
        return replace(now, stage="gone", reason="it was told to stop")

    def _context(self, record: ServerRecord) -> int:
        facts = facts_of(record.url, "/ktdesk/model", LOOK_SECONDS, self.api_key)
        return 0 if facts is None else int(facts.get("context", 0))

    def _last_words(self) -> str:
        """Why the server is not there any more, as far as it said."""
        started = self._started
        if started is not None and not (self._record is not None and self._record.is_alive):
            with suppress(OSError):
                return str(started.failure())
        return "the server ended"

    def _fail(self, turn: int, reason: str) -> LinkState:
        with self._lock:
            if turn == self._turn:
                self.state = replace(self.state, stage="failed", reason=reason)
        return self.state

    def _forget_started(self) -> None:
        if self._started is not None:
            self._started.forget()
        self._started = None
