"""A failure that stays until somebody acts: its cause, and the next steps as buttons."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Button, Static

from ktdesk.tui.widgets.button_row import ButtonRow

BUTTON_MARGIN, MIN_BUTTON = 5, 9
"""Cells that a button takes beside its word; and with it, at least."""


class FailureBar(Horizontal):
    """Hidden while there is nothing to say. Where the buttons would leave the text less than half, they stand below."""

    HELP = "What went wrong, and what can be done: choose one of the buttons. Up and down scroll a long text."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_text(-1)", "Text above", show=False),
        Binding("down", "scroll_text(1)", "Text below", show=False),
    ]
    DEFAULT_CSS = """
    FailureBar {
        height: auto; display: none; background: $error 15%; padding: 0 1;
        &.-shown { display: block; layout: horizontal; }
        &.-shown.-stacked { layout: vertical; }
        VerticalScroll { width: 1fr; height: auto; max-height: 25vh; }
        Static { width: 1fr; height: auto; color: $error; }
        ButtonRow { padding: 0; }
        &:ansi { background: ansi_default; border-top: solid ansi_red; }
        &:ansi Static { color: ansi_red; }
        &:nocolor Static { color: $foreground; }
        ButtonRow Button { margin: 0 0 0 1; }
        &.-stacked ButtonRow Button { margin: 0 1 0 0; }
    }
    """

    class Chosen(Message):
        """One of the next steps."""

        def __init__(self, step: str) -> None:
            super().__init__()
            self.step = step

    def __init__(self) -> None:
        super().__init__()
        self.first_step: str | None = None
        self._words: tuple[str, ...] = ()
        """Of the buttons."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(markup=False)
        yield ButtonRow()

    def tell(self, text: str, **steps: str) -> None:
        """steps: what is posted, and the button's word."""
        self.query_one(Static).update(text)
        row = self.query_one(ButtonRow)
        row.remove_children(Button)
        row.mount(*(Button(word, name=step, classes=f"-{step}", compact=True) for step, word in steps.items()))
        self.first_step = next(iter(steps), None)
        self._words = tuple(steps.values())
        self.query_one(VerticalScroll).scroll_home(animate=False)
        self.add_class("-shown")
        self.on_resize()

    def on_resize(self) -> None:
        taken = sum(max(MIN_BUTTON, len(word) + BUTTON_MARGIN) for word in self._words)
        is_stacked = 2 * taken > self.app.size.width
        self.set_class(is_stacked, "-stacked")
        self.query_one(ButtonRow).styles.width = "1fr" if is_stacked else taken

    def clear(self) -> None:
        self.first_step = None
        self.remove_class("-shown")

    def action_scroll_text(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)

    @on(Button.Pressed)
    def _choose(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Chosen(str(event.button.name)))
