"""What is shown before anything is said: how the model is, and what can be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Center, VerticalScroll
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Button, Static

from ktdesk.tui.markdown.harmless import harmless

if TYPE_CHECKING:
    from ktdesk.conversations.messages import Conversation
    from ktdesk.model_link import LinkState


class Welcome(VerticalScroll, can_focus=False):
    HELP = "How the model is. With one loaded, write below."
    DEFAULT_CSS = """
    Welcome {
        height: 1fr; align-vertical: middle;
        Static { text-align: center; width: 100%; height: auto; }
        #welcome-title { color: $primary; text-style: bold; }
        #welcome-text { color: $foreground 75%; margin: 1 4; }
        #welcome-last { color: $foreground 75%; margin: 0 4; display: none; }
        Center { height: auto; }
        Button { display: none; margin-top: 1; }
        &.-none Button, &.-failed Button { display: block; }
        #reload { display: none; }
        &.-gone #reload { display: block; }
    }
    """
    link: reactive[LinkState | None] = reactive(None)
    last: reactive[str] = reactive("")
    """Where the last conversation is, in words."""

    class Chosen(Message):
        def __init__(self, step: str) -> None:
            super().__init__()
            self.step = step

    def compose(self) -> ComposeResult:
        yield Static("ktdesk", id="welcome-title")
        yield Static(id="welcome-text", markup=False)
        yield Static(id="welcome-last", markup=False)
        with Center():
            yield Button("Start it again", name="reload", id="reload", variant="primary")
        with Center():
            yield Button("Start the demo model", name="demo", variant="primary")
        with Center():
            yield Button("Set up another model", name="setup")

    @property
    def first_step(self) -> str | None:
        """What Enter does before anything is written."""
        stage = "" if self.link is None else self.link.stage
        return {"none": "demo", "failed": "demo", "gone": "reload"}.get(stage)

    def watch_link(self, state: LinkState | None) -> None:
        stage = "looking" if state is None else state.stage
        for name in ("none", "failed", "gone", "looking"):
            self.set_class(stage == name or (name == "failed" and stage == "gone"), f"-{name}")
        self.query_one("#welcome-text", Static).update(harmless(welcome_text(state)))

    def watch_last(self, words: str) -> None:
        shown = self.query_one("#welcome-last", Static)
        shown.display = bool(words)
        shown.update(harmless(words))

    @on(Button.Pressed)
    def _choose(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.Chosen(str(event.button.name)))


def last_words_of(conversation: Conversation, key: str) -> str:
    """For who opens the app anew. key: the one that lists the conversations."""
    path = conversation.path
    is_cut = bool(path) and path[-1].role == "assistant" and path[-1].state != "done"
    cut = " Its last answer was cut; what came of it is kept." if is_cut else ""
    return f"Last time: “{conversation.title}”.{cut} {key}, then Enter, opens it."


def welcome_text(state: LinkState | None) -> str:
    if state is None:
        return "looks for a model …"
    texts = {
        "none": "No model is loaded yet. The demo model is small: about 90 MB to fetch, once. Enter starts it.",
        "starting": f"{state.model} starts …",
        "loading": f"{state.model} loads: {state.percent:.0f} %\nYou may write already.",
        "ready": f"{state.model} is ready. Write below; Enter sends.",
        "failed": f"{state.model} could not be loaded: {state.reason}",
        "gone": f"{state.model} is not there any more: {state.reason}",
    }
    return texts[state.stage]
