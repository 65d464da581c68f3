"""Server: address, model, clients and log; stop it, load its model again, copy what a client needs; other servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Button, Log, OptionList, Static

from ktdesk.client_snippets import CLIENTS, snippet
from ktdesk.options import EngineOptions, options_with
from ktdesk.quality_figures import as_lines, load_figures
from ktdesk.server_records import ServerRecord
from ktdesk.tui.keys import binding
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.tui.server.log_tail import LogTail
from ktdesk.tui.server.other_servers import OtherServers
from ktdesk.tui.server.server_words import NO_SERVER, facts_of, no_server_words
from ktdesk.tui.widgets.button_row import ButtonRow
from ktdesk.watching import Moment, Watcher

SECONDS_BETWEEN_LOOKS = 1.0
ACTIONS = {
    "start": "Start again",
    "stop": "Stop",
    "options": "Other options",
    "copy": "Copy",
    "next": "Next client",
}
OTHER_ENDS = "It finishes the answers that it gives, for ten seconds at most."
OWN_ENDS = "An answer to this app ends at once; those to other clients get up to ten seconds."


class ActionButton(Button):
    HELP = """The server that answers the app, and any other client: its address, its log, and the lines that connect a
client library to it. `s` stops it, Start again loads the same model anew, `o` with other options, `n` shows another
client, `c` copies its lines."""


class ServerLog(Log):
    HELP = """What the server writes, the newest below. Up, down, Page Up and Page Down scroll; ctrl+c copies what is
marked. The whole file is named above."""


class ServerScreen(PlaceScreen):
    """Of the server that the app is linked to, and of others that run."""

    PLACE = "server"
    AUTO_FOCUS: ClassVar[str] = "#start"
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("server.stop", "stop"),
        binding("server.start", "start", show=False),
        binding("server.options", "options"),
        binding("server.copy", "copy"),
        binding("server.next", "next_client"),
    ]
    DEFAULT_CSS = """
    ServerScreen {
        #all { height: 1fr; }
        #facts, #snippet, #client { height: auto; padding: 0 1; }
        #client { margin-top: 1; text-style: bold; }
        #snippet { background: $surface; }
        #others-title { margin-top: 1; padding: 0 1; text-style: bold; height: auto; }
        OtherServers { margin-top: 0; }
        #actions { margin-top: 1; }
        #log { height: 1fr; min-height: 5; margin-top: 1; padding: 0 1; }
        &.-short #log { height: 8; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._client = CLIENTS[0]
        self._tail: LogTail | None = None
        self._watcher: Watcher | None = None
        self._last: tuple[Path, EngineOptions] | None = None
        """The model that was there last, and how it was loaded."""

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="all", can_focus=False), Vertical():
            yield Static(NO_SERVER, id="facts", markup=False)
            with ButtonRow(id="actions"):
                for name, word in ACTIONS.items():
                    yield ActionButton(word, id=name, compact=True)
            yield Static(id="others-title")
            yield OtherServers()
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
            running = await asyncio.to_thread(self.ktdesk.link.servers)
            self._show(record, moment, [other for other in running if record is None or other.pid != record.pid])
            if self._tail is not None and (text := await asyncio.to_thread(self._tail.more)):
                self.query_one(Log).write(harmless(text))
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _show(self, record: ServerRecord | None, moment: Moment | None, others: Sequence[ServerRecord]) -> None:
        facts = self.query_one("#facts", Static)
        if record is None:
            facts.update(no_server_words(self.ktdesk.link.state))
        else:
            self._last = Path(record.path), options_with(record.changed)
            quality = as_lines(load_figures(self.ktdesk.settings.data_folder, Path(record.path)))
            facts.update(facts_of(record, moment, self.ktdesk.link.state, quality))
        self.query_one("#stop", Button).disabled = record is None
        for name in ("#start", "#options"):
            self.query_one(name, Button).disabled = self._last_model is None
        self.query_one("#others-title", Static).update(
            "Also running: Enter uses one, delete stops it" if others else ""
        )
        self.query_one("#others-title").display = bool(others)
        self.query_one(OtherServers).show(others)
        self._show_snippet(record)

    @property
    def _last_model(self) -> tuple[Path, EngineOptions] | None:
        """Of a server that never ran here: the one that the link failed to start."""
        link = self.ktdesk.link
        return self._last or ((Path(link.state.path), link.options) if link.state.path else None)

    @on(Button.Pressed)
    def _act(self, event: Button.Pressed) -> None:
        actions = {
            "start": self.action_start,
            "stop": self.action_stop,
            "options": self.action_options,
            "copy": self.action_copy,
            "next": self.action_next_client,
        }
        actions[str(event.button.id)]()

    def action_stop(self) -> None:
        record = self.ktdesk.link.record
        if record is not None:
            self.query_one(OtherServers).ending.add(record.pid)
            self.notify(OWN_ENDS, title=f"{record.model} on port {record.port} is stopped", markup=False)
            self.ktdesk.change_link(lambda link: link.stop_server())

    def action_start(self) -> None:
        """The model that was there last, as it was loaded. A server that has it is stopped first."""
        if self._last_model is not None:
            self._load(*self._last_model)

    @work
    async def action_options(self) -> None:
        from ktdesk.tui.server.options_dialog import ServerOptionsDialog

        last = self._last_model
        if last is not None:
            path, options = last
            figures = load_figures(self.ktdesk.settings.data_folder, path)
            chosen = await self.app.push_screen_wait(ServerOptionsDialog(str(path), options, figures))
            if chosen is not None:
                self._load(path, chosen)

    def _load(self, path: Path, options: EngineOptions) -> None:
        record = self.ktdesk.link.record
        if record is not None:
            self.query_one(OtherServers).ending.add(record.pid)
        self.ktdesk.change_link(lambda link: link.start_anew(path, options))

    @on(OptionList.OptionSelected)
    def _use(self, event: OptionList.OptionSelected) -> None:
        record = self.query_one(OtherServers).records[event.option_index]
        self.ktdesk.change_link(lambda link: link.attach(record))

    @on(OtherServers.Stopped)
    @work
    async def _stop_other(self, event: OtherServers.Stopped) -> None:
        others, record = self.query_one(OtherServers), event.record
        others.ending.add(record.pid)
        others.show(others.records)
        self.notify(OTHER_ENDS, title=f"{record.model} on port {record.port} is stopped", markup=False)
        if not await asyncio.to_thread(self.ktdesk.link.stop_other, record):
            self.tell(
                f"{record.model} on port {record.port} does not end.",
                next_step=f"`kill -9 {record.pid}` ends it at once; its answers break off.",
            )

    def action_copy(self) -> None:
        record = self.ktdesk.link.record
        if record is not None:
            self.app.copy_to_clipboard(self._snippet(record))
            self.notify(f"Lines for {self._client}, if your terminal takes them", title="Copied")

    def action_next_client(self) -> None:
        self._client = CLIENTS[(CLIENTS.index(self._client) + 1) % len(CLIENTS)]
        self._show_snippet(self.ktdesk.link.record)

    def _snippet(self, record: ServerRecord) -> str:
        return snippet(self._client, record.url, record.model, record.needs_key)

    def _show_snippet(self, record: ServerRecord | None) -> None:
        self.query_one("#client", Static).update("" if record is None else f"From {self._client}")
        self.query_one("#snippet", Static).update("" if record is None else self._snippet(record))
