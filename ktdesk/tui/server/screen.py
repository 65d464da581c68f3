"""Server: address, model, clients and log; stop it, start it again, copy what a client needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Log, Static

from ktdesk.client_snippets import CLIENTS, snippet
from ktdesk.server_records import ServerRecord
from ktdesk.tui.keys import binding
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.watching import Moment, Watcher

SECONDS_BETWEEN_LOOKS = 1.0
ACTIONS = {"start": "Start again", "stop": "Stop", "copy": "Copy", "next": "Next client"}
LOG_BYTES = 32 << 10
"""Of the end of the log, when the place is entered."""
NO_SERVER = "The app is not linked to a server. Chat starts one with a model; so does `ktdesk serve MODEL`."


class ActionButton(Button):
    HELP = """The server that answers the app, and any other client: its address, its log, and the lines that connect a
client library to it. `s` stops it, Start again loads the same model, `n` shows another client, `c` copies its lines."""


class ServerLog(Log):
    HELP = """What the server writes, the newest below. Up, down, Page Up and Page Down scroll; ctrl+c copies what is
marked. The whole file is named above."""


class ServerScreen(PlaceScreen):
    """Of the server that the app is linked to."""

    PLACE = "server"
    AUTO_FOCUS: ClassVar[str] = "#start"
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("server.stop", "stop"),
        binding("server.start", "start", show=False),
        binding("server.copy", "copy"),
        binding("server.next", "next_client"),
    ]
    DEFAULT_CSS = """
    ServerScreen {
        #all { height: 1fr; }
        #facts, #snippet, #client { height: auto; padding: 0 1; }
        #client { margin-top: 1; text-style: bold; }
        #snippet { background: $surface; }
        #actions { height: 1; padding: 0 1; margin-top: 1; }
        #actions Button { height: 1; min-width: 8; border: none; margin-right: 1; }
        #log { height: 1fr; min-height: 5; margin-top: 1; padding: 0 1; }
        &.-short #log { height: 8; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._client = CLIENTS[0]
        self._tail: LogTail | None = None
        self._watcher: Watcher | None = None
        self._last_path = ""
        """Of the model that was there last."""

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="all", can_focus=False), Vertical():
            yield Static(NO_SERVER, id="facts", markup=False)
            with Horizontal(id="actions"):
                for name, word in ACTIONS.items():
                    yield ActionButton(word, id=name, compact=True)
            yield Static(id="client", markup=False)
            yield Static(id="snippet", markup=False)
            yield ServerLog(id="log", max_lines=2000, auto_scroll=True)

    def on_screen_resume(self) -> None:
        self._watch()

    def on_screen_suspend(self) -> None:
        self.workers.cancel_group(self, "watch")

    @work(exclusive=True, group="watch")
    async def _watch(self) -> None:
        while True:
            record = self.ktdesk.link.record
            if record is not None and (self._watcher is None or self._watcher.record != record):
                self._watcher = Watcher(record, self.ktdesk.link.api_key)
                self._tail = LogTail(Path(record.log))
                self.query_one(Log).clear()
            moment = await asyncio.to_thread(self._watcher.look) if record is not None and self._watcher else None
            others = [] if record is not None else await asyncio.to_thread(self.ktdesk.link.servers)
            self._show(record, moment, others)
            if self._tail is not None and (text := await asyncio.to_thread(self._tail.more)):
                self.query_one(Log).write(harmless(text))
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _show(self, record: ServerRecord | None, moment: Moment | None, others: Sequence[ServerRecord]) -> None:
        self._last_path = self.ktdesk.link.state.path or self._last_path
        self.query_one("#facts", Static).update(facts_of(record, moment, others))
        self.query_one("#stop", Button).disabled = record is None
        self.query_one("#start", Button).disabled = not self._last_path
        self._show_snippet(record)

    def _snippet(self, record: ServerRecord) -> str:
        return snippet(self._client, record.url, record.model, record.needs_key)

    @on(Button.Pressed)
    def _act(self, event: Button.Pressed) -> None:
        actions = {
            "start": self.action_start,
            "stop": self.action_stop,
            "copy": self.action_copy,
            "next": self.action_next_client,
        }
        actions[str(event.button.id)]()

    def action_stop(self) -> None:
        if self.ktdesk.link.record is not None:
            self.notify("It finishes what it can.", title="The server ends")
            self.ktdesk.change_link(lambda link: link.stop_server())

    def action_start(self) -> None:
        """The model that was there last."""
        if self.ktdesk.link.state.path:
            self.ktdesk.change_link(lambda link: link.restart())
        elif self._last_path:
            path = Path(self._last_path)
            self.ktdesk.change_link(lambda link: link.start(path, link.options))

    def action_copy(self) -> None:
        record = self.ktdesk.link.record
        if record is not None:
            self.app.copy_to_clipboard(self._snippet(record))
            self.notify(f"Lines for {self._client}, if your terminal takes them", title="Copied")

    def action_next_client(self) -> None:
        self._client = CLIENTS[(CLIENTS.index(self._client) + 1) % len(CLIENTS)]
        self._show_snippet(self.ktdesk.link.record)

    def _show_snippet(self, record: ServerRecord | None) -> None:
        self.query_one("#client", Static).update("" if record is None else f"From {self._client}")
        self.query_one("#snippet", Static).update("" if record is None else self._snippet(record))


def facts_of(record: ServerRecord | None, moment: Moment | None, others: Sequence[ServerRecord] = ()) -> Content:
    """others: that run, where the app is linked to none."""
    if record is None:
        names = ", ".join(f"{other.port} ({other.model})" for other in others)
        return Content(f"{NO_SERVER} Running: {names}." if others else NO_SERVER)
    minutes = round(max(0.0, time.time() - record.started) / 60)
    connections = 0 if moment is None else moment.num_open_requests
    rows = {
        "Address": record.url,
        "Key": "asked for (KTDESK_API_KEY)" if record.needs_key else "none is needed",
        "Model": f"{record.model}  {record.path}",
        "Options": record.changed_words or "none were given",
        "Clients": "the server does not answer" if moment is None else _counted(connections, "connection"),
        "Process": f"{record.pid}, for {_counted(minutes, 'minute')}",
        "Log": record.log,
    }
    return Content("\n").join(Content.assemble((f"{name:<10}", "bold"), text) for name, text in rows.items())


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class LogTail:
    """What is written to a file from now on, and the end of what was there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position: int | None = None

    def more(self) -> str:
        """New text; empty where there is none, or no file."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._position is None or self._position > size:  # a new file begins
                    self._position = max(0, size - LOG_BYTES)
                file.seek(self._position)
                data = file.read()
                self._position += len(data)
        except OSError:
            return ""
        return data.decode("utf-8", errors="replace")
