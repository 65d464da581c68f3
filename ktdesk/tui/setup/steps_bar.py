"""The line of the steps: where one is, what is done, and what can be gone to."""

from __future__ import annotations

from typing import NamedTuple

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class SetupStep(NamedTuple):
    name: str
    title: str


SETUP_STEPS = (
    SetupStep("machine", "Machine"),
    SetupStep("models", "Model"),
    SetupStep("plan", "Plan"),
    SetupStep("download", "Download"),
    SetupStep("load", "Load"),
    SetupStep("chat", "Chat"),
)
NAMES = tuple(step.name for step in SETUP_STEPS)


class StepsBar(Widget):
    """A click on a step goes there."""

    HELP = "The steps of the setup. A click goes to one that was reached; Escape goes back by one."
    DEFAULT_CSS = """
    StepsBar { height: 1; padding: 0 1; background: $surface; }
    """
    here: reactive[str] = reactive(NAMES[0])
    reached: reactive[frozenset[str]] = reactive(frozenset({"machine", "models"}))

    class Chosen(Message):
        def __init__(self, step: str) -> None:
            super().__init__()
            self.step = step

    def on_mount(self) -> None:
        self.auto_links = False  # a step has its own colours

    def render(self) -> Content:
        sign = " → " if self.size.width >= 70 else "→"
        parts = []
        for number, step in enumerate(SETUP_STEPS):
            text = f"{number + 1} {step.title}" if self.size.width >= 60 or step.name == self.here else f"{number + 1}"
            style = "bold reverse" if step.name == self.here else "$primary" if step.name in self.reached else "dim"
            part = Content.styled(f" {text} ", style)
            parts.append(part.stylize(f"@click=choose('{step.name}')") if step.name in self.reached else part)
        return Content.styled(sign, "dim").join(parts)

    def action_choose(self, step: str) -> None:
        self.post_message(self.Chosen(step))
