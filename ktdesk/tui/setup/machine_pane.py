"""The first step: what this machine is, how far its measurement is, and what would make it faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Button, Static

from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.machine_words import findings_content, machine_content, measuring_words
from ktdesk.tui.setup.step_pane import StepPane
from ktdesk.tui.widgets.button_row import ButtonRow

if TYPE_CHECKING:
    from ktdesk.tui.setup.machine import Measuring
    from ktdesk_wizard.doctor.diagnosis import Finding
    from ktdesk_wizard.probe.machine_facts import MachineFacts


MARGIN, SCROLL_BAR = 1, 2
"""Beside the text."""
MEASURING_MENDS = ("not-measured", "old-measurement", "busy-measurement", "hurried-measurement")
"""Findings that are left out while it is measured: there is nothing to do about them."""


class MachineButton(Button):
    HELP = """What ktdesk found out about this machine. Speeds of models are computed from it, so memory and processor
are measured once, for about half a minute. Enter goes on to the models, also while that lasts; where it is not
measured, speeds are reckoned from what its memory modules could do, or are unknown."""


class MachinePane(StepPane):
    DEFAULT_CSS = """
    MachinePane {
        VerticalScroll { height: 1fr; padding: 0 1; }
        Static { height: auto; }
        #help-title { text-style: bold; margin-top: 1; }
        #measuring { padding: 0 1; color: $warning; }
    }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._findings: Sequence[Finding] | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static("looks at this machine …", id="machine-facts", markup=False)
            yield Static("", id="help-title", markup=False)
            yield Static("", id="findings", markup=False)
        yield Static("", id="measuring", markup=False)
        with ButtonRow():
            yield MachineButton("Choose a model", id="choose", compact=True)
            yield MachineButton("Go on", id="resume", compact=True)
            yield MachineButton("Measure again", id="measure", compact=True)
            yield MachineButton("Do not measure", id="unmeasured", compact=True)

    def on_mount(self) -> None:
        self.query_one("#resume").display = False
        self.show_measuring(None)

    def show(self, facts: MachineFacts, findings: Sequence[Finding], *, is_measuring: bool) -> None:
        self.query_one("#machine-facts", Static).update(machine_content(facts, is_measuring=is_measuring))
        self.query_one("#help-title", Static).update("What would help")
        self._findings = [each for each in findings if not (is_measuring and each.id in MEASURING_MENDS)]
        self.on_resize()

    def on_resize(self) -> None:
        if self._findings is not None:
            self.query_one("#findings", Static).update(findings_content(self._findings, self._width))

    @property
    def _width(self) -> int:
        return max(30, self.app.size.width - 2 * MARGIN - SCROLL_BAR)

    def show_measuring(self, measuring: Measuring | None) -> None:
        words = self.query_one("#measuring", Static)
        words.display = self.query_one("#unmeasured").display = measuring is not None
        self.query_one("#measure").display = measuring is None
        words.update("" if measuring is None else measuring_words(measuring))

    def offer(self, unfinished: str | None) -> None:
        """To go on with a setup that was interrupted."""
        button = self.query_one("#resume", Button)
        button.display = unfinished is not None
        button.label = f"Go on with {harmless(unfinished or '')}"

    @on(Button.Pressed)
    def _ask(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Asked(str(event.button.id)))
