"""The conversation that is open, and what is done with it. Knows no widgets; writes at once what changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ktdesk.chat_stream import ChatStream
from ktdesk.conversations.answering import Answering
from ktdesk.conversations.errors import ConversationError, DamagedStoreError
from ktdesk.conversations.messages import Attachment, Conversation, Message, title_of
from ktdesk.conversations.store import FILE, ConversationStore
from ktdesk.errors import UsageError
from ktdesk.tui.chat.requests import chat_body

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState

MAX_ATTACHED_BYTES = 16 << 20


class ChatSession:
    """One conversation at a time, None before its first message."""

    def __init__(self, folder: Path) -> None:
        self.notice = ""
        """What the user must know about what is kept."""
        self.store = self._open(folder / FILE)
        self.conversation: Conversation | None = None
        self.answering: Answering | None = None
        self.draft_system = ""
        self.draft_sampling: dict[str, float] = {}
        self.draft_tools = ""
        """For the conversation that the next message begins."""

    @property
    def is_answering(self) -> bool:
        return self.answering is not None and not self.answering.has_ended

    @property
    def shown(self) -> list[tuple[Message, tuple[int, int]]]:
        """The messages of the branch, each with which of how many versions it is."""
        if self.conversation is None:
            return []
        siblings: dict[int | None, list[int]] = {}
        for message_id in sorted(self.conversation.messages):
            siblings.setdefault(self.conversation.messages[message_id].parent_id, []).append(message_id)
        return [
            (message, (siblings[message.parent_id].index(message.message_id) + 1, len(siblings[message.parent_id])))
            for message in self.conversation.path
        ]

    def open(self, conversation_id: int) -> bool:
        """False where it is not there any more."""
        self._leave()
        found = self.store.load(conversation_id)
        if found is not None:
            self.conversation = found
        return found is not None

    def begin(self) -> None:
        """A new conversation, kept once something is said. It begins as the last one was set up."""
        self._leave()
        if self.conversation is not None:
            self.draft_system, self.draft_tools = self.conversation.system, self.conversation.tools
            self.draft_sampling = dict(self.conversation.sampling)
        self.conversation = None

    def ask(self, text: str, attachments: Sequence[Attachment] = ()) -> Message:
        """The user's next message; or the result of a tool that was called."""
        conversation = self._conversation(text or attachments[0].name)
        calls = conversation.open_calls()
        if calls:
            return self.store.add(conversation, conversation.tip_id, "tool", text, call_id=calls[0].call_id)
        return self.store.add(conversation, conversation.tip_id, "user", text, attachments=tuple(attachments))

    def edit(self, message: Message, text: str) -> Message:
        """Another version of a question."""
        assert self.conversation is not None
        more = {"attachments": message.attachments, "call_id": message.call_id}
        return self.store.add(self.conversation, message.parent_id, message.role, text, **more)

    @property
    def waits_for_results(self) -> list[str]:
        """Names of the tools that were called and whose results are still to be written."""
        return [] if self.conversation is None else [call.name for call in self.conversation.open_calls()]

    def answer(self, link: LinkState, api_key: str | None, when_changed: Callable[[], None]) -> Answering:
        """Asks for the answer to the last message. Another version where that is an answer itself."""
        conversation = self.conversation
        assert conversation is not None
        last = conversation.path[-1]
        parent_id = last.parent_id if last.role == "assistant" else last.message_id
        body = chat_body(conversation, conversation.sent(parent_id), link.model)
        message = self.store.add(conversation, parent_id, "assistant", "", state="streaming", model=link.model)
        stream = ChatStream(link.url, api_key, body)
        self.answering = Answering(stream, message, self._saver(conversation), when_changed)
        self.answering.start()
        return self.answering

    def take_answer(self) -> Message:
        """As far as it came."""
        assert self.answering is not None
        message = self.answering.message
        if self.conversation is not None and message.message_id in self.conversation.messages:
            self.conversation.put(message)
        return message

    def stop(self) -> None:
        if self.answering is not None:
            self.answering.stop()

    def show_version(self, message: Message, step: int) -> bool:
        """The next older or newer version, with what followed it. False where there is none."""
        assert self.conversation is not None
        versions = self.conversation.versions(message)
        index = [other.message_id for other in versions].index(message.message_id) + step
        if not 0 <= index < len(versions):
            return False
        self.store.set_tip(self.conversation, self.conversation.newest_tip(versions[index].message_id))
        return True

    def fork(self, message: Message) -> None:
        """A new conversation that begins as this one up to a message, and is open from now on."""
        assert self.conversation is not None
        path = self.conversation.path_to(message.message_id)
        now = time.time()
        copy = replace(
            self.conversation,
            title=f"{self.conversation.title} (fork)",
            created=now,
            changed=now,
            tip_id=message.message_id,
            messages={item.message_id: item for item in path},
        )
        self._leave()
        self.conversation = self.store.insert(copy)

    def cut(self, message: Message) -> None:
        """The branch ends before a message. Nothing is deleted: it is a version that is not shown."""
        assert self.conversation is not None
        self.store.set_tip(self.conversation, message.parent_id)

    def describe(self, system: str, sampling: dict[str, float], tools: str) -> None:
        if self.conversation is None:
            self.draft_system, self.draft_sampling, self.draft_tools = system, sampling, tools
            return
        self.conversation.system, self.conversation.sampling, self.conversation.tools = system, sampling, tools
        self.store.describe(self.conversation)

    def mend(self, error: ConversationError) -> str:
        """What can be done about it, and was. Of a damaged database, the open conversation goes into a new one."""
        if not isinstance(error, DamagedStoreError):
            return ""
        self.store.database.begin_anew()
        if self.conversation is not None:
            self.conversation = self.store.insert(self.conversation)
        return f"It is kept as {self.store.database.kept_aside}, and a new one is begun."

    def close(self) -> None:
        """Waits until an answer that comes is saved."""
        self._leave()
        self.store.close()

    def _conversation(self, first_text: str) -> Conversation:
        if self.conversation is None:
            created = self.store.create(title_of(first_text), self.draft_system, self.draft_sampling)
            created.tools = self.draft_tools
            if created.tools:
                self.store.describe(created)
            self.conversation = created
        return self.conversation

    def _leave(self) -> None:
        """What is answered now is stopped, and kept as far as it came."""
        if self.answering is not None:
            self.answering.stop()
            self.answering.join(2.0)
            self.take_answer()
            self.answering = None

    def _saver(self, conversation: Conversation) -> Callable[[Message], None]:
        return lambda message: self.store.save(conversation.conversation_id, message)

    def _open(self, path: Path) -> ConversationStore:
        """Where nothing can be kept, the conversations of this session are in memory."""
        try:
            store = ConversationStore(path)
        except (ConversationError, OSError) as error:
            self.notice = f"{error}. Until that is mended, conversations last until you leave."
            return ConversationStore(None)
        aside = store.database.kept_aside
        if aside is not None:
            self.notice = f"The database of conversations was damaged. It is kept as {aside}, and a new one is begun."
        store.end_interrupted()
        return store


def read_attachment(path: Path) -> Attachment:
    """A file of text. UsageError where it is none, or too large."""
    size = path.stat().st_size
    if size > MAX_ATTACHED_BYTES:
        raise UsageError(f"{path.name} has {size >> 20} MiB; at most {MAX_ATTACHED_BYTES >> 20} MiB can be attached")
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        raise UsageError(f"{path.name} is no text: it holds zero bytes")
    return Attachment(path.name, data.decode("utf-8", errors="replace").replace("\r\n", "\n"))
