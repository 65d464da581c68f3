"""Which file: a path that is typed, with what lies there below it."""

from __future__ import annotations

import os
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.events import Key
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.widgets.dialog import Dialog

MAX_SHOWN = 200


class FileQuestion(Dialog[Path]):
    """endings: of the files that are offered; none: all. Any path may be typed."""

    HELP = "Type a path, or go down into the list. Enter opens a folder or takes a file, Tab completes."
    DEFAULT_CSS = """
    FileQuestion OptionList { height: 12; border: none; background: $surface; }
    """

    def __init__(self, title: str, endings: tuple[str, ...] = (), start: Path | None = None) -> None:
        super().__init__(title)
        self._endings = endings
        self._start = start or Path.cwd()
        self._shown: list[str] = []

    def compose_body(self) -> ComposeResult:
        yield Input(f"{self._start}{os.sep}", select_on_focus=False)
        yield OptionList(markup=False)

    @on(Input.Changed)
    def _list(self, event: Input.Changed) -> None:
        folder, begun = os.path.split(os.path.expanduser(event.value))
        names = self._names(folder or ".", begun)
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(harmless(name), id=str(number)) for number, name in enumerate(names))
        self._shown = [os.path.join(folder, name) for name in names]

    def _names(self, folder: str, begun: str) -> list[str]:
        """Folders first, with a slash."""
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if self._is_offered(entry, begun)]
        except OSError:
            return []
        entries.sort(key=lambda entry: (not entry.is_dir(), entry.name.lower()))
        return [entry.name + os.sep * entry.is_dir() for entry in entries[:MAX_SHOWN]]

    def _is_offered(self, entry: os.DirEntry[str], begun: str) -> bool:
        if not entry.name.lower().startswith(begun.lower()) or (entry.name.startswith(".") and not begun):
            return False
        return entry.is_dir() or not self._endings or entry.name.lower().endswith(self._endings)

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        self._choose(os.path.expanduser(event.value))

    @on(OptionList.OptionSelected)
    def _take_option(self, event: OptionList.OptionSelected) -> None:
        self._choose(self._shown[int(str(event.option.id))])

    def _choose(self, path: str) -> None:
        if os.path.isdir(path):
            entry = self.query_one(Input)
            entry.value = path.rstrip(os.sep) + os.sep
            entry.focus()
            entry.cursor_position = len(entry.value)
        elif os.path.isfile(path):
            self.dismiss(Path(path))
        else:
            self.notify(f"there is no file {harmless(path)}", severity="warning", markup=False)

    def on_key(self, event: Key) -> None:
        entry = self.query_one(Input)
        if event.key == "down" and entry.has_focus:
            event.stop()
            self.query_one(OptionList).focus()
        elif event.key == "tab" and entry.has_focus and self._shown:
            event.stop()
            event.prevent_default()
            entry.value = self._shown[0]
            entry.cursor_position = len(entry.value)
