"""The model that an app talks to: which server has it, and how far that server is. Knows no screen."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ktdesk.errors import AppError
from ktdesk.options import EngineOptions, changed_options, options_with
from ktdesk.server_answers import facts_of
from ktdesk.server_records import STOPS, ServerRecord, running_servers, stop_server
from ktdesk.settings import KEY_VARIABLE, Settings
from ktdesk.starting import StartedServer, only_starter

LOOK_SECONDS = 5.0
"""A server that does not say how it is for so long is gone."""
KEEP_ALIVE_SECONDS = 600.0
SECONDS_BETWEEN_LOOKS = 0.05
LAST_LINES = 20
"""Of a log, in which its end is looked for."""
Stage = Literal["none", "starting", "loading", "ready", "failed", "gone"]
STOPPED_HERE = "it was stopped here"
END_SECONDS = 20.0
"""For a server that was told to stop to finish its answers and leave the memory."""


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
    was_told: bool = False
    """It is gone, or about to go, because somebody wanted that: `reason` says who, as far as that is known."""

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
        self._ending: ServerRecord | None = None
        """It was told to stop, and may still have its memory."""
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
            self.options = options_with(record.changed)
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

    def stop_server(self, limit_seconds: float = END_SECONDS) -> LinkState:
        """Ends the server that has the model. From now on nothing is asked of it; returns once it is gone."""
        record = self._record
        if record is None:
            return self.leave()
        with self._lock:
            self._turn += 1
            self._forget_started()
            self._record, self._ending = None, record
            self.state = replace(self.state, stage="gone", reason=STOPPED_HERE, was_told=True)
        self.stop_other(record, limit_seconds)
        return self.state

    def stop_other(self, record: ServerRecord, limit_seconds: float = END_SECONDS) -> bool:
        """Ends any server of this user. Whether it is gone."""
        try:
            return not record.is_alive or stop_server(record, limit_seconds)
        except ProcessLookupError:
            return True

    def start_anew(self, path: Path, options: EngineOptions) -> LinkState:
        """With other options: the server that has the model now is stopped first, so that there is room."""
        if self._record is not None:
            self.stop_server()
        return self.start(path, options)

    def restart(self) -> LinkState:
        """The same model again, after its server failed or went away."""
        return self.start(Path(self.state.path), self.options)

    def _start(self, path: Path, turn: int, *, guards_memory: bool) -> LinkState:
        self._await_end()
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
                if is_fit and os.path.samefile(path, record.path) and not record.needs_key and _takes_requests(record):
                    return record
        return None

    def _await_end(self) -> None:
        """Of a server that was told to stop: two models at a time may be too much."""
        ending = self._ending
        deadline = time.monotonic() + END_SECONDS
        while ending is not None and ending.is_alive and time.monotonic() < deadline:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        self._ending = None

    def _seen(self, record: ServerRecord, facts: dict[str, Any] | None) -> LinkState:
        now = replace(self.state, model=record.model, url=record.url, path=record.path)
        if facts is None:
            if record.is_alive and now.is_waiting:
                return now
            if now.was_told:
                return now
            said = end_in_log(Path(record.log))
            return replace(now, stage="gone", reason=said or self._last_words(), was_told=bool(said))
        stage, percent = str(facts.get("status")), float(facts.get("percent", 0.0))
        if stage == "ready":
            context = now.context or self._context(record)
            return replace(now, stage="ready", percent=100.0, reason="", context=context, was_told=False)
        if stage == "loading":
            return replace(now, stage="loading", percent=percent, reason="")
        if stage == "failed":
            return replace(now, stage="failed", reason=str(facts.get("reason", "it did not say why")))
        self._ending = record
        return replace(now, stage="gone", reason=str(facts.get("reason") or "it was told to stop"), was_told=True)

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


def _takes_requests(record: ServerRecord) -> bool:
    """One that was told to stop, or hangs, does not."""
    facts = facts_of(record.url, "/health", LOOK_SECONDS)
    return facts is not None and facts.get("status") in ("ready", "loading")


def end_in_log(log: Path) -> str:
    """Why a server stopped, where it was meant to; else empty."""
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return next((line.partition(STOPS)[2] for line in reversed(lines) if STOPS in line), "")
    return ""
