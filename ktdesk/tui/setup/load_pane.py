"""The fifth step: how far loading is and how long it will take, what measuring found, and a way out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.setup.bars import progress_bar
from ktdesk.tui.setup.step_pane import StepPane
from ktdesk.tui.widgets.button_row import ButtonRow
from ktdesk_wizard.setup.step import Step

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState
    from ktdesk_wizard.setup.outcome import Outcome

SIGNS = {"waiting": "◌", "running": "▸", "asking": "▸", "done": "●", "failed": "✗", "cancelled": "○"}
TRIED = ("load", "smoke", "prove", "save")
TITLE_WIDTH = 22
PACE_SECONDS = 5.0
MIN_SECONDS = 1.0
ALL = 0.995
"""Shown as 100 %: what is left then takes no time worth a word."""


class LoadButton(Button):
    HELP = """The model is loaded: weights are read from the disk and packed for this processor. Enter cancels it; what
was fetched stays. Where it is measured first, it is loaded in a process of its own before the server does."""


class Pace:
    """How long it will take, by the last moments."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, float]] = deque()

    def remaining_seconds(self, share: float) -> float | None:
        """share: done by now; less than before begins anew. None as long as there is too little to judge by."""
        now = self._clock()
        if self._marks and share < self._marks[-1][1]:
            self._marks.clear()
        self._marks.append((now, share))
        while len(self._marks) > 2 and now - self._marks[1][0] >= PACE_SECONDS:
            self._marks.popleft()
        began, before = self._marks[0]
        if now - began < MIN_SECONDS or share <= before:
            return None
        return (1.0 - share) * (now - began) / (share - before)


class LoadPane(StepPane):
    DEFAULT_CSS = """
    LoadPane {
        VerticalScroll { height: 1fr; padding: 1 1 0 1; }
        Static { height: auto; }
        #tried, #measured-lines { margin-top: 1; }
    }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._pace = Pace()

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(id="load-title", markup=False)
            yield Static(id="load-bar", markup=False)
            yield Static(id="load-words", markup=False)
            yield Static(id="tried", markup=False)
            yield Static(id="measured-lines", markup=False)
        with ButtonRow():
            yield LoadButton("Cancel", id="cancel", compact=True)
            yield LoadButton("Chat now, without measuring", id="skip", compact=True)

    def on_mount(self) -> None:
        self.query_one("#skip").display = False

    def show_steps(self, title: str, steps: Sequence[Step]) -> None:
        """While it is tried and measured."""
        tried = [step for step in steps if step.name in TRIED]
        running = next((step for step in tried if step.state == "running"), None)
        self.query_one("#skip").display = running is not None
        advance = None if running is None else running.advance
        if running is not None:
            note = "" if advance is None else advance.note
            self._show(title, None if advance is None else advance.share, f"{running.title}  {note}")
        lines = [_step_line(step) for step in tried]
        self.query_one("#tried", Static).update(Content("\n").join(lines))

    def show_outcome(self, outcome: Outcome | None) -> None:
        from ktdesk.planned_text import planned_lines

        lines = [] if outcome is None else list(planned_lines(outcome.compared))
        self.query_one("#measured-lines", Static).update("\n".join(lines))
        if outcome is None:
            self.query_one("#tried", Static).update("")

    def show_link(self, state: LinkState) -> None:
        """While the server loads it."""
        self.query_one("#skip").display = False
        words = {
            "starting": "the server starts",
            "loading": "weights are read and packed",
            "ready": "it is ready",
            "failed": harmless(state.reason),
            "gone": harmless(state.reason),
            "none": "stopped",
        }
        self._show(
            state.model, state.percent / 100 if state.stage in ("loading", "ready") else None, words[state.stage]
        )

    def _show(self, title: str, share: float | None, words: str) -> None:
        width = max(30, self.size.width - 4)
        self.query_one("#load-title", Static).update(Content.styled(harmless(title), "bold"))
        bar = progress_bar(0.0 if share is None else share, width - 6)
        percent = "" if share is None else f" {share:4.0%}"
        self.query_one("#load-bar", Static).update(Content.assemble(bar, (percent, "bold")))
        left = None if share is None or share >= ALL else self._pace.remaining_seconds(share)
        rest = "" if left is None else f", {duration_text(left)} left"
        self.query_one("#load-words", Static).update(harmless(f"{words.strip()}{rest}"))

    @on(Button.Pressed)
    def _ask(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Asked(str(event.button.id)))


def _step_line(step: Step) -> Content:
    style = {"done": "$success", "failed": "$error", "running": "$primary"}.get(step.state, "dim")
    sign = SIGNS[step.state]
    return Content.assemble((sign, style), f" {step.title:<{TITLE_WIDTH}}", (harmless(step.result), "$foreground 75%"))


def duration_text(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"{whole} s" if whole < 120 else f"{round(whole / 60)} min"
