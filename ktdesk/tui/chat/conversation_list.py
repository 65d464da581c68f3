"""The conversations, newest first, and what a search finds in them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from ktdesk.amounts import counted
from ktdesk.conversations.messages import Summary
from ktdesk.conversations.search import MARK_BEGIN, MARK_END, Hit
from ktdesk.tui.keys import binding
from ktdesk.tui.markdown.harmless import harmless

DAY_SECONDS = 86_400


class Conversations(OptionList):
    """The list itself."""

    HELP = "Enter opens a conversation. It can be renamed, given tags, and deleted."
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("conversation.rename", "ask('rename')"),
        binding("conversation.tags", "ask('tags')"),
        binding("conversation.delete", "ask('delete')"),
    ]

    def action_ask(self, what: str) -> None:
        if self.highlighted is not None:
            option = self.get_option_at_index(self.highlighted)
            conversation_id, _ = ids_of(option)
            self.post_message(ConversationList.Asked(what, conversation_id))


class ConversationList(Vertical):
    """With a search above: words, or #tag."""

    HELP = "Words search all messages; #tag lists the conversations with a tag. Down goes into the list."
    DEFAULT_CSS = """
    ConversationList {
        width: 34; display: none; border-right: solid $panel;
        &.-shown { display: block; }
        Input, Input:focus { border: none; height: 1; background: $panel; padding: 0 1; }
        OptionList { height: 1fr; background: $background; padding: 0; scrollbar-gutter: stable; }
        OptionList, OptionList:focus { border: none; }
        OptionList > .option-list--option { padding: 0 1; }
        &:ansi { border-right: solid ansi_bright_black; }
    }
    """

    class Opened(Message):
        def __init__(self, conversation_id: int, message_id: int | None) -> None:
            super().__init__()
            self.conversation_id = conversation_id
            self.message_id = message_id

    class Searched(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Asked(Message):
        """The user wants something done with a conversation."""

        def __init__(self, what: str, conversation_id: int) -> None:
            super().__init__()
            self.what = what
            self.conversation_id = conversation_id

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Search, or #tag", id="search")
        yield Conversations(markup=False)

    @property
    def sought(self) -> str:
        return self.query_one(Input).value.strip()

    def show(self, summaries: Sequence[Summary], open_id: int | None) -> None:
        self._fill([Option(_summary_text(item), id=f"{item.conversation_id}/") for item in summaries])
        for index, item in enumerate(summaries):
            if item.conversation_id == open_id:
                self.query_one(Conversations).highlighted = index

    def show_hits(self, hits: Sequence[Hit]) -> None:
        options = [
            Option(_hit_text(hit), id=f"{hit.conversation_id}/{hit.message_id}/{i}") for i, hit in enumerate(hits)
        ]
        self._fill(options or [Option("nothing was found", disabled=True)])

    def focus_search(self) -> None:
        self.query_one(Input).focus()

    def focus_list(self) -> None:
        listed = self.query_one(Conversations)
        listed.focus()
        if listed.option_count and listed.highlighted is None:
            listed.highlighted = 0

    def _fill(self, options: Sequence[Option]) -> None:
        listed = self.query_one(Conversations)
        listed.clear_options()
        listed.add_options(options)

    @on(Input.Changed, "#search")
    def _search(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Searched(event.value.strip()))

    @on(Input.Submitted, "#search")
    def _enter_list(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_list()

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Opened(*ids_of(event.option)))

    def on_key(self, event: Key) -> None:
        if event.key == "down" and self.query_one(Input).has_focus:
            event.stop()
            self.focus_list()


def ids_of(option: Option) -> tuple[int, int | None]:
    """Conversation and message."""
    conversation_id, message_id = str(option.id).split("/")[:2]
    return int(conversation_id), int(message_id) if message_id else None


def _summary_text(item: Summary) -> Content:
    tags = "".join(f" #{tag}" for tag in item.tags)
    rest = f"{_when(item.changed)}, {counted(item.num_messages, 'message')}{harmless(tags)}"
    return Content.styled(harmless(item.title), "bold") + Content(f"\n{rest}")


def _hit_text(hit: Hit) -> Content:
    text = Content.styled(harmless(hit.title), "bold")
    if not hit.excerpt:
        return text
    text += Content("\n")
    excerpt = " ".join(hit.excerpt.split())
    for number, part in enumerate(excerpt.replace(MARK_END, MARK_BEGIN).split(MARK_BEGIN)):
        text += Content.styled(harmless(part), "bold underline" if number % 2 else "")
    return text


def _when(seconds: float) -> str:
    age = time.time() - seconds
    form = "%H:%M" if age < DAY_SECONDS / 2 else "%a %H:%M" if age < 6 * DAY_SECONDS else "%Y-%m-%d"
    return time.strftime(form, time.localtime(seconds))
