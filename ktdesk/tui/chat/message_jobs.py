"""What is done with a message of the transcript: copied, asked again, edited, forked, its versions, cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.chat.copying import copy
from ktdesk.tui.chat.transcript import Transcript

if TYPE_CHECKING:
    from ktdesk.conversations.messages import Message
    from ktdesk.tui.chat.screen import ChatScreen

WHILE_ANSWERING = ("copy", "copy_code")
"""Whatever else is done would change what the answer is an answer to."""


class MessageJobs:
    """Of the chat's screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.edited: Message | None = None
        """The question that is written anew."""

    def do(self, event: Transcript.Asked) -> None:
        jobs: dict[str, Callable[[], None]] = {
            "copy": lambda: self._copy(event.message.content, "The message"),
            "copy_code": lambda: self._copy_code(event),
            "again": lambda: self._again(event.message),
            "edit": lambda: self._edit(event.message),
            "fork": lambda: self._fork(event.message),
            "older": lambda: self._show_version(event.message, -1),
            "newer": lambda: self._show_version(event.message, 1),
            "delete": lambda: self._cut(event.message),
        }
        if event.what in WHILE_ANSWERING or not self._screen.session.is_answering:
            jobs[event.what]()
        else:
            self._screen.warn_of_answer()

    def stop_editing(self) -> bool:
        """Whether something was edited."""
        was_edited, self.edited = self.edited is not None, None
        if was_edited:
            self._screen.query_one(Composer).clear()
            self._screen.show_doing("")
        return was_edited

    def _copy(self, text: str, what: str) -> None:
        screen = self._screen
        said = copy(screen.app, text, screen.ktdesk.settings.data_folder)
        screen.notify(said, title=f"{what} was copied", markup=False)

    def _copy_code(self, event: Transcript.Asked) -> None:
        codes = [event.code] if event.code else self._screen.query_one(Transcript).codes_of(event.message)
        if codes:
            self._copy(codes[-1], "The block of code")
        else:
            self._screen.notify("There is no block of code in this message.", severity="warning")

    def _again(self, message: Message) -> None:
        """For an answer, or for what answers a question."""
        session = self._screen.session
        conversation = session.conversation
        assert conversation is not None
        if self._screen.kept(lambda: session.store.set_tip(conversation, message.message_id)):
            self._screen.answers.ask()

    def _edit(self, message: Message) -> None:
        if message.role == "assistant":
            text = "Answers cannot be edited: edit the question, or ask again."
            self._screen.notify(text, severity="warning")
            return
        self.edited = message
        composer = self._screen.query_one(Composer)
        composer.text = message.content
        composer.move_cursor(composer.document.end)
        composer.focus()
        self._screen.show_doing("editing: Enter sends another version, Escape leaves it")

    def _fork(self, message: Message) -> None:
        if self._screen.kept(lambda: self._screen.session.fork(message)):
            self._screen.show_conversation()
            self._screen.conversations.refill()
            self._screen.notify("This is a new conversation; the other is as it was.")

    def _cut(self, message: Message) -> None:
        if self._screen.kept(lambda: self._screen.session.cut(message)):
            self._screen.show_conversation()

    def _show_version(self, message: Message, step: int) -> None:
        if self._screen.kept(lambda: self._screen.session.show_version(message, step)):
            self._screen.show_conversation(keep_place=True)
