"""Where the next message is written."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import TextArea

from ktdesk.tui.keys import binding

MAX_PASTED_LETTERS = 8_000
MAX_PASTED_LINES = 120
"""More becomes an attachment: nobody edits it here, and wrapping it would take the app's time at each key."""


class Composer(TextArea):
    """Grows with the text."""

    HELP = """\
Write here. Enter sends, ctrl+j begins a new line. Where nothing is written, Enter does what is offered first.
A long text that is pasted becomes an attachment.

Escape stops an answer that comes, and else goes to the messages.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("chat.send", "send"),
        binding("chat.newline", "newline", show=False),
    ]
    DEFAULT_CSS = """
    Composer {
        height: auto; min-height: 3; max-height: 10; border: round $panel; padding: 0 1; background: $background;
        &:focus { border: round $primary; }
        &:ansi { border: round ansi_bright_black; }
        &:ansi:focus { border: round ansi_blue; }
    }
    """

    class Sent(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class LongPaste(Message):
        """What was pasted is too long to be written here."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(tab_behavior="focus", soft_wrap=True, show_line_numbers=False, compact=False)
        self.placeholder = "Message"
        self.cursor_blink = False  # it would cost a picture twice a second

    def action_send(self) -> None:
        """Nothing is a message, too: that what is offered shall be done."""
        self.post_message(self.Sent(self.text.strip()))

    def action_newline(self) -> None:
        self.insert("\n")

    async def _on_paste(self, event: Paste) -> None:
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) > MAX_PASTED_LETTERS or text.count("\n") > MAX_PASTED_LINES:
            event.stop()
            event.prevent_default()
            self.post_message(self.LongPaste(text))

    async def _on_key(self, event: Key) -> None:
        """Keys of ours before TextArea's own. Not by priority: then they would overtake what was typed before."""
        bound = self.screen.active_bindings.get(event.key)
        jobs = {"chat.send": self.action_send, "chat.newline": self.action_newline}
        job = None if bound is None else jobs.get(bound.binding.id or "")
        if job is not None:
            event.stop()
            event.prevent_default()
            job()
