"""What is done with conversations: listed, searched, opened, described, deleted, exported and imported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ktdesk.amounts import counted
from ktdesk.errors import AppError
from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.chat.conversation_list import ConversationList
from ktdesk.tui.chat.conversation_questions import ask_import, ask_tags, ask_title, export, import_into, may_delete
from ktdesk.tui.chat.transcript import Transcript
from ktdesk.tui.chat.welcome import Welcome, last_words_of
from ktdesk.tui.keys import KEYS

if TYPE_CHECKING:
    from ktdesk.conversations.messages import Conversation
    from ktdesk.tui.chat.screen import ChatScreen

LIST_WIDTH = 100
"""Of a terminal, that has room for the list beside an open conversation."""


class ConversationJobs:
    """Of the chat's screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    def refill(self) -> None:
        """Those that are sought, or all; where they are shown."""
        screen, listed = self._screen, self._screen.query_one(ConversationList)
        if not listed.has_class("-shown"):
            return
        sought, session = listed.sought, screen.session
        open_id = None if session.conversation is None else session.conversation.conversation_id

        def fill() -> None:
            from ktdesk.conversations.search import search

            if sought and not sought.startswith("#"):
                listed.show_hits(search(session.store, sought))
            else:
                listed.show(session.store.summaries(sought[1:] or None), open_id)

        screen.kept(fill)

    def show_last(self) -> None:
        """Before anything is said: where the conversation of last time is."""
        screen = self._screen
        if screen.has_conversation or not screen.ktdesk.has_conversations:
            return

        def look() -> None:
            store = screen.session.store
            for newest in store.summaries(limit=1):
                conversation = store.load(newest.conversation_id)
                if conversation is not None:
                    key = screen.ktdesk.bound_keys.get("chat.list", KEYS["chat.list"].key)
                    screen.query_one(Welcome).last = last_words_of(conversation, key)

        screen.kept(look)

    def show_list(self) -> None:
        """Goes there, or hides it."""
        listed = self._screen.query_one(ConversationList)
        if listed.has_class("-shown") and listed.has_focus_within:
            listed.remove_class("-shown")
            self._screen.query_one(Composer).focus()
            return
        listed.add_class("-shown")
        self.refill()
        listed.focus_list()

    def open(self, event: ConversationList.Opened) -> None:
        screen, session = self._screen, self._screen.session
        if not screen.kept(lambda: session.open(event.conversation_id)):
            return
        conversation = session.conversation
        if conversation is not None and event.message_id in conversation.messages:
            tip = conversation.newest_tip(event.message_id)
            screen.kept(lambda: session.store.set_tip(conversation, tip))
        screen.show_conversation()
        transcript = screen.query_one(Transcript)
        if event.message_id:
            transcript.focus()
            screen.call_after_refresh(transcript.choose, event.message_id)
        else:
            screen.query_one(Composer).focus()
        if screen.app.size.width < LIST_WIDTH:
            screen.query_one(ConversationList).remove_class("-shown")

    def do(self, event: ConversationList.Asked) -> None:
        conversation = self._find(event.conversation_id)
        if conversation is not None:
            jobs = {"rename": self._rename, "tags": self._tag, "delete": self._delete}
            self._screen.run_worker(jobs[event.what](conversation))

    async def export(self) -> None:
        screen, conversation = self._screen, self._screen.session.conversation
        if conversation is None:
            screen.notify("There is no conversation to export yet.", severity="warning")
            return
        try:
            paths = await export(screen.ktdesk, conversation)
        except OSError as error:
            screen.tell(error)
            return
        if paths:
            screen.notify("\n".join(map(str, paths)), title="Exported", markup=False)

    async def take_in(self) -> None:
        """Of a file of another program."""
        screen = self._screen
        path = await ask_import(screen.ktdesk)
        if path is None:
            return
        try:
            count = await asyncio.to_thread(import_into, screen.session.store, path)
        except (AppError, OSError) as error:
            screen.tell(error, next_step="Nothing of what was there has changed.")
            return
        screen.notify(f"{counted(count, 'conversation')} {'was' if count == 1 else 'were'} imported.")
        screen.query_one(ConversationList).add_class("-shown")
        self.refill()

    def _find(self, conversation_id: int) -> Conversation | None:
        """The open one as it is here; others as they are kept."""
        current = self._screen.session.conversation
        if current is not None and current.conversation_id == conversation_id:
            return current
        found: list[Conversation | None] = [None]
        self._screen.kept(lambda: found.append(self._screen.session.store.load(conversation_id)))
        return found[-1]

    async def _rename(self, conversation: Conversation) -> None:
        title = await ask_title(self._screen.ktdesk, conversation)
        if title is not None:
            conversation.title = title
            self._describe(conversation)

    async def _tag(self, conversation: Conversation) -> None:
        tags = await ask_tags(self._screen.ktdesk, conversation, self._screen.session.store.tags())
        if tags is not None:
            conversation.tags = tags
            self._describe(conversation)

    def _describe(self, conversation: Conversation) -> None:
        self._screen.kept(lambda: self._screen.session.store.describe(conversation))
        self._screen.show_title()
        self.refill()

    async def _delete(self, conversation: Conversation) -> None:
        screen, session = self._screen, self._screen.session
        if not await may_delete(screen.ktdesk, conversation):
            return
        current = session.conversation
        if current is not None and current.conversation_id == conversation.conversation_id:
            session.begin()
        screen.kept(lambda: session.store.delete(conversation.conversation_id))
        screen.show_conversation()
        self.refill()
