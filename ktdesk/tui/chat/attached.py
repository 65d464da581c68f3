"""What goes with the next message: files of text, and what was pasted and is too long to be written."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widgets import Static

from ktdesk.conversations.messages import Attachment
from ktdesk.tui.markdown.harmless import harmless

PASTED = "pasted text"


class Attached(Static):
    """A line of names; hidden where there is nothing."""

    DEFAULT_CSS = """
    Attached { height: auto; padding: 0 2; color: $primary; display: none; }
    Attached.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.items: tuple[Attachment, ...] = ()

    @property
    def num_letters(self) -> int:
        return sum(len(item.text) for item in self.items)

    def add(self, *attachments: Attachment) -> None:
        self.set_items((*self.items, *attachments))

    def add_paste(self, text: str) -> None:
        number = sum(item.name.startswith(PASTED) for item in self.items) + 1
        self.add(Attachment(f"{PASTED} {number}", text))

    def set_items(self, items: Sequence[Attachment] = ()) -> None:
        self.items = tuple(items)
        names = ", ".join(f"▤ {harmless(item.name)} ({item.num_bytes:,} bytes)" for item in items)
        self.update(names)
        self.set_class(bool(names), "-shown")
