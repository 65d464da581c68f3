"""The messages of a conversation, one below the other: which are shown, which is chosen, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Blur, Click, Focus
from textual.message import Message as TextualMessage

from ktdesk.conversations.messages import Message
from ktdesk.tui.chat.entry import Entry
from ktdesk.tui.chat.stack import Stack
from ktdesk.tui.chat.stack_view import StackView
from ktdesk.tui.chat.transcript_styles import COMPONENT_CSS, COMPONENTS
from ktdesk.tui.keys import binding


class Transcript(StackView, can_focus=True):
    """With a message that is chosen, and what is done with one."""

    HELP = """\
The conversation. Up and down choose a message; what is done is done with that one.

A click on **copy** takes a block of code, a click on **Thought for** unfolds reasoning, the arrows beside a name go
through the versions. Text is marked with the mouse and copied with ctrl+c.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("message.above", "choose(-1)", show=False),
        binding("message.below", "choose(1)", show=False),
        binding("message.copy", "ask('copy')"),
        binding("message.copy_code", "ask('copy_code')"),
        binding("message.again", "ask('again')"),
        binding("message.edit", "ask('edit')"),
        binding("message.fork", "ask('fork')"),
        binding("message.fold", "toggle_chosen"),
        binding("message.older", "ask('older')", show=False),
        binding("message.newer", "ask('newer')", show=False),
        binding("message.delete", "ask('delete')", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "top", show=False),
        Binding("end", "follow", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS
    DEFAULT_CSS = f"""
    Transcript {{
        background: $background; scrollbar-gutter: stable; overflow-x: hidden;
        {COMPONENT_CSS}
    }}
    """

    class Asked(TextualMessage):
        """The user wants something done with a message."""

        def __init__(self, what: str, message: Message, code: str = "") -> None:
            super().__init__()
            self.what = what
            self.message = message
            self.code = code
            """The block of code that was clicked on."""

    def __init__(self, *, unfolds_reasoning: bool = False) -> None:
        super().__init__()
        self.unfolds_reasoning = unfolds_reasoning

    def show(self, messages: Sequence[tuple[Message, tuple[int, int]]]) -> None:
        """Another conversation, or another branch: each message and which of how many versions it is."""
        entries = []
        for message, version in messages:
            entry = self._stack.find(message.message_id) or Entry(message, version, unfolded=self.unfolds_reasoning)
            if (entry.message, entry.version) != (message, version):
                entry.change(message, version)
            entries.append(entry)
        self._stack = Stack(entries)
        if self._chosen is not None:
            self._chosen = min(self._chosen, len(entries) - 1) if entries else None
        self._measure_anew()
        if self.follows:
            self._scroll_to_end()

    def change(self, message: Message, waited_seconds: float = 0.0) -> None:
        """A message that is shown has grown. It is drawn if it is seen."""
        index = self._stack.index_of(message.message_id)
        if index is None:
            return
        entry = self._stack.entries[index]
        entry.waited_seconds = waited_seconds
        shown = self._shown_lines()
        entry.change(message)
        if self._is_seen(index) or message.state != "streaming":
            self._settle()
            if self.follows:
                self._scroll_to_end()
            self._refresh_from(shown)

    @property
    def chosen(self) -> Message | None:
        """The message that the user chose, or the last."""
        if not len(self._stack):
            return None
        return self._stack.entries[-1 if self._chosen is None else self._chosen].message

    def choose(self, message_id: int) -> None:
        """And show it."""
        index = self._stack.index_of(message_id)
        if index is not None:
            self._chosen = index
            self._show_chosen()

    def codes_of(self, message: Message) -> list[str]:
        entry = self._stack.find(message.message_id)
        return [] if entry is None else entry.codes

    def fold_all(self, *, unfolded: bool) -> None:
        self.unfolds_reasoning = unfolded
        for entry in self._stack.entries:
            if entry.message.role == "assistant":
                entry.fold(unfolded=unfolded)
        self._measure_anew()
        if self.follows:
            self._scroll_to_end()

    def on_focus(self, event: Focus) -> None:
        if self._chosen is None and len(self._stack):
            self._chosen = len(self._stack) - 1
        self.refresh()

    def on_blur(self, event: Blur) -> None:
        self._chosen = None
        self.refresh()

    def on_click(self, event: Click) -> None:
        index = self._stack.at(self.scroll_offset.y + event.y)
        if index < len(self._stack):
            self._chosen = index
            self.refresh()

    def action_choose(self, step: int) -> None:
        last = len(self._stack) - 1
        if last < 0:
            return
        chosen = last if self._chosen is None else self._chosen + step
        if chosen > last:
            self.action_follow()
        self._chosen = min(max(chosen, 0), last)
        self._show_chosen()

    def action_ask(self, what: str) -> None:
        if self.chosen is not None:
            self.post_message(self.Asked(what, self.chosen))

    def action_toggle_chosen(self) -> None:
        if self.chosen is not None:
            self.action_toggle_fold(self.chosen.message_id)

    def action_toggle_fold(self, message_id: int) -> None:
        entry = self._stack.find(message_id)
        if entry is not None:
            entry.toggle()
            self._settle()
            self.refresh()

    def action_show_version(self, message_id: int, step: int) -> None:
        entry = self._stack.find(message_id)
        if entry is not None:
            self.post_message(self.Asked("older" if step < 0 else "newer", entry.message))

    def action_copy_code(self, message_id: int, number: int) -> None:
        entry = self._stack.find(message_id)
        if entry is not None and number < len(entry.codes):
            self.post_message(self.Asked("copy_code", entry.message, entry.codes[number]))

    def _show_chosen(self) -> None:
        assert self._chosen is not None
        self._settle()
        top, end = self._stack.top(self._chosen), self._stack.end(self._chosen)
        view = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        if top < view[0] or end - top > self.size.height:
            self.scroll_to(y=top, animate=False, immediate=True, force=True)
        elif end > view[1]:
            self.scroll_to(y=end - self.size.height, animate=False, immediate=True, force=True)
        self.refresh()
