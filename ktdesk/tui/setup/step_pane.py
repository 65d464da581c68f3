"""What the panes of the steps have in common: their buttons ask the screen for something, by a word."""

from __future__ import annotations

from textual.containers import Vertical
from textual.message import Message


class StepPane(Vertical):
    class Asked(Message):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what
