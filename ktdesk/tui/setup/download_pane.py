"""The fourth step: how far the model and each of its files is, how fast it comes, and a way to pause it."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.bars import bytes_line
from ktdesk.tui.setup.step_pane import StepPane
from ktdesk.tui.widgets.button_row import ButtonRow
from ktdesk_wizard.setup.step import Advance, Step

TOTAL_WIDTH, FILE_WIDTH = 10, 36


class DownloadButton(Button):
    HELP = """What is fetched comes in pieces over several connections; each is checked. Pause it, leave, or close the
terminal: what came is kept, and it goes on from there. The rate is of the last ten seconds."""


class DownloadPane(StepPane):
    DEFAULT_CSS = """
    DownloadPane {
        VerticalScroll { height: 1fr; padding: 1 1 0 1; }
        Static { height: auto; }
        #files { margin-top: 1; }
    }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(id="download-title", markup=False)
            yield Static(id="total", markup=False)
            yield Static(id="rate", markup=False)
            yield Static(id="files", markup=False)
        with ButtonRow():
            yield DownloadButton("Pause", id="pause", compact=True)

    def show(self, title: str, step: Step, *, is_paused: bool) -> None:
        is_paused = is_paused or step.state in ("cancelled", "failed")
        self.query_one("#download-title", Static).update(Content.styled(harmless(title), "bold"))
        advance = step.advance
        if advance is not None:
            self._show_advance(advance, is_paused=is_paused)
        elif step.state == "done":
            self._show_words("it is here" if not step.is_from_before else "it was here already: nothing is fetched")
        elif is_paused:
            self.query_one("#rate", Static).update("paused")
        else:
            self._show_words("waits for its turn" if step.state == "waiting" else "begins …")
        button = self.query_one("#pause", Button)
        button.label = "Go on" if is_paused else "Pause"
        button.disabled = step.state == "done"

    def _show_words(self, words: str) -> None:
        self.query_one("#rate", Static).update(words)
        for name in ("#total", "#files"):
            self.query_one(name, Static).update("")

    def _show_advance(self, advance: Advance, *, is_paused: bool) -> None:
        width = max(30, self.size.width - 4)
        self.query_one("#total", Static).update(
            bytes_line("all of it", int(advance.done), int(advance.total), width, TOTAL_WIDTH)
        )
        self.query_one("#rate", Static).update(harmless("paused" if is_paused else advance.note))
        wide = min(FILE_WIDTH if width < 100 else 60, max([len(file.name) + 1 for file in advance.files] + [8]))
        lines = [bytes_line(file.name, file.done_bytes, file.total_bytes, width, wide) for file in advance.files]
        self.query_one("#files", Static).update(Content("\n").join(lines))

    @on(Button.Pressed)
    def _ask(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Asked("resume" if str(event.button.label) == "Go on" else "pause"))
