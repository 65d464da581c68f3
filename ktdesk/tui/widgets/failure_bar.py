"""A failure that stays until somebody acts: its cause, and the next steps as buttons."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Button, Static


class FailureBar(Horizontal):
    """Hidden while there is nothing to say."""

    HELP = "What went wrong, and what can be done: choose one of the buttons."
    DEFAULT_CSS = """
    FailureBar {
        height: auto; max-height: 6; display: none; background: $error 15%; padding: 0 1;
        &.-shown { display: block; layout: horizontal; }
        Static { width: 1fr; height: auto; color: $error; }
        &:ansi { background: ansi_default; border-top: solid ansi_red; max-height: 7; }
        &:ansi Static { color: ansi_red; }
        &:nocolor Static { color: $foreground; }
        Button { height: 1; min-width: 8; border: none; margin-left: 1; }
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

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def tell(self, text: str, **steps: str) -> None:
        """steps: what is posted, and the button's word."""
        self.query_one(Static).update(text)
        self.remove_children(Button)
        self.mount(*(Button(word, name=step, classes=f"-{step}", compact=True) for step, word in steps.items()))
        self.first_step = next(iter(steps), None)
        self.add_class("-shown")

    def clear(self) -> None:
        self.first_step = None
        self.remove_class("-shown")

    @on(Button.Pressed)
    def _choose(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Chosen(str(event.button.name)))
