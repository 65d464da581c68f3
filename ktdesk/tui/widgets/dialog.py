"""Questions on top of a screen. Escape leaves them without an answer."""

from __future__ import annotations

from typing import ClassVar, Generic, Optional, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

Result = TypeVar("Result")


class Dialog(ModalScreen[Optional[Result]], Generic[Result]):  # noqa: UP045  evaluated, by Python 3.10 too
    """A frame with a title. Subclasses yield what is in it from `compose_body`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]
    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        & > .dialog {
            width: 72; max-width: 96%; height: auto; max-height: 94%;
            padding: 0 1; border: round $primary; border-title-color: $primary; background: $surface;
            border-subtitle-color: $foreground 70%;
        }
        &:ansi > .dialog { background: ansi_default; border: round ansi_blue; }
        .dialog-buttons { height: auto; align-horizontal: right; margin-top: 1; }
        .dialog-buttons Button { margin-left: 1; min-width: 10; }
        .dialog-text { height: auto; margin-bottom: 1; }
        Label { margin-top: 1; }
        Input { border: tall $panel; height: 3; }
        Input:focus { border: tall $primary; }
    }
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", can_focus=False) as frame:
            frame.border_title = self._title
            frame.border_subtitle = "esc cancels"
            yield from self.compose_body()

    def compose_body(self) -> ComposeResult:
        yield from ()


def buttons(*items: Button) -> Horizontal:
    return Horizontal(*items, classes="dialog-buttons")


class Confirmation(Dialog[bool]):
    """Whether to do something that cannot be taken back."""

    def __init__(self, title: str, text: str, yes: str) -> None:
        super().__init__(title)
        self._text = text
        self._yes = yes

    def compose_body(self) -> ComposeResult:
        yield Static(self._text, classes="dialog-text", markup=False)
        yield buttons(Button("Cancel", id="no"), Button(self._yes, id="yes", variant="error"))

    @on(Button.Pressed)
    def _answer(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")


class TextQuestion(Dialog[str]):
    """One line of text."""

    def __init__(self, title: str, label: str, text: str = "", placeholder: str = "") -> None:
        super().__init__(title)
        self._label = label
        self._text = text
        self._placeholder = placeholder

    def compose_body(self) -> ComposeResult:
        yield Label(self._label, markup=False)
        yield Input(self._text, placeholder=self._placeholder)

    @on(Input.Submitted)
    def _answer(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class KeyQuestion(Dialog[str]):
    """The next key that is pressed."""

    TAKES_EVERY_KEY = True

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, what: str) -> None:
        super().__init__(what)

    def compose_body(self) -> ComposeResult:
        yield Static("Press the key that is to do this.", classes="dialog-text")

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss(None if event.key == "escape" else event.key)
