"""A conversation as it is kept: a tree of messages, of which one branch is read at a time.

Messages with the same parent are versions of each other: of a question that was edited, of an answer that was asked
for again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Role = Literal["user", "assistant", "tool"]
State = Literal["done", "streaming", "stopped", "failed"]
UNTITLED = "New conversation"


@dataclass(frozen=True)
class Attachment:
    """A text that goes with a question."""

    name: str
    text: str

    @property
    def num_bytes(self) -> int:
        return len(self.text.encode("utf-8", "replace"))


@dataclass(frozen=True)
class ToolCall:
    call_id: str
    name: str
    arguments: str
    """JSON, as far as it came."""


@dataclass(frozen=True)
class Measured:
    """What an answer took. 0: nobody measured it."""

    num_prompt_tokens: int = 0
    num_answer_tokens: int = 0
    num_cached_tokens: int = 0
    first_token_seconds: float = 0.0
    """As the user waited for it."""
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefill_tok_s(self) -> float:
        """Of the tokens that were computed."""
        computed = self.num_prompt_tokens - self.num_cached_tokens
        return computed / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tok_s(self) -> float:
        """Without the first token, which the prefill gives."""
        return (self.num_answer_tokens - 1) / self.decode_seconds if self.decode_seconds > 0 else 0.0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_answer_tokens


@dataclass(frozen=True)
class Message:
    message_id: int
    parent_id: int | None
    role: Role
    content: str
    created: float
    """Seconds since 1970."""
    reasoning: str = ""
    reasoning_seconds: float = 0.0
    state: State = "done"
    failure: str = ""
    """Why it is not whole."""
    finish_reason: str = ""
    model: str = ""
    attachments: tuple[Attachment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """Of the call that a tool's message answers."""
    measured: Measured = Measured()

    @property
    def sent_content(self) -> str:
        """With what is attached, as the model reads it."""
        texts = [self.content, *(_fenced(attachment) for attachment in self.attachments)]
        return "\n\n".join(text for text in texts if text)

    @property
    def sent(self) -> dict[str, Any]:
        """As the server takes it."""
        facts: dict[str, Any] = {"role": self.role, "content": self.sent_content}
        if self.calls:
            facts["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        if self.role == "tool":
            facts["tool_call_id"] = self.call_id
        return facts

    def facts(self) -> dict[str, Any]:
        """What is kept beside role, content and reasoning: only what says something."""
        kept = asdict(self)
        for name in ("message_id", "parent_id", "role", "content", "created", "reasoning", "state"):
            del kept[name]
        if self.measured == Measured():
            del kept["measured"]
        return {name: value for name, value in kept.items() if value}


def message_of(row: Mapping[str, Any], facts: Mapping[str, Any]) -> Message:
    """The inverse of `facts`, with the columns beside it."""
    more = dict(facts)
    more["attachments"] = tuple(Attachment(**item) for item in more.get("attachments", ()))
    more["calls"] = tuple(ToolCall(**item) for item in more.get("calls", ()))
    more["measured"] = Measured(**more.get("measured", {}))
    return Message(**row, **more)


@dataclass(frozen=True)
class Summary:
    """A conversation in the list."""

    conversation_id: int
    title: str
    changed: float
    num_messages: int
    tags: tuple[str, ...] = ()


@dataclass
class Conversation:
    """One that is open."""

    conversation_id: int
    title: str = UNTITLED
    created: float = 0.0
    changed: float = 0.0
    system: str = ""
    sampling: dict[str, float] = field(default_factory=dict)
    """Only what differs from what the model's file recommends."""
    tools: str = ""
    """Definitions of functions, as JSON."""
    tags: tuple[str, ...] = ()
    tip_id: int | None = None
    """The last message of the branch that is read."""
    messages: dict[int, Message] = field(default_factory=dict)
    """All of all branches."""

    @property
    def path(self) -> list[Message]:
        """The branch that is read, from its beginning."""
        return list(reversed([*self._upwards(self.tip_id)]))

    def path_to(self, message_id: int | None) -> list[Message]:
        return list(reversed([*self._upwards(message_id)]))

    def versions(self, message: Message) -> list[Message]:
        """The message and its siblings, oldest first."""
        return [
            other
            for other in sorted(self.messages.values(), key=lambda other: other.message_id)
            if other.parent_id == message.parent_id
        ]

    def newest_tip(self, message_id: int) -> int:
        """The end of the branch through a message that was written to last."""
        children: dict[int | None, int] = {}
        for other in self.messages.values():
            children[other.parent_id] = max(other.message_id, children.get(other.parent_id, 0))
        while message_id in children:
            message_id = children[message_id]
        return message_id

    def put(self, message: Message) -> None:
        self.messages[message.message_id] = message

    def sent(self, tip_id: int | None) -> list[dict[str, Any]]:
        """The branch up to a message, as the server takes it. What failed before it said anything is left out."""
        first = [{"role": "system", "content": self.system}] if self.system.strip() else []
        said = [message for message in self.path_to(tip_id) if message.role != "assistant" or _says_something(message)]
        return [*first, *(message.sent for message in said)]

    def open_calls(self) -> list[ToolCall]:
        """Those of the last answer that nobody answered yet."""
        answered: set[str] = set()
        for message in reversed(self.path):
            if message.role == "tool":
                answered.add(message.call_id)
            elif message.role == "assistant" and message.state == "done":
                return [call for call in message.calls if call.call_id not in answered]
            else:
                break
        return []

    def _upwards(self, message_id: int | None) -> Iterator[Message]:
        seen: set[int] = set()
        while message_id is not None and message_id in self.messages and message_id not in seen:
            seen.add(message_id)
            message = self.messages[message_id]
            yield message
            message_id = message.parent_id


def title_of(text: str) -> str:
    """For a conversation that begins with this."""
    line = " ".join(text.split())
    return (line if len(line) <= 60 else line[:59].rstrip() + "…") or UNTITLED


def without_ids(message: Message) -> Message:
    return replace(message, message_id=0, parent_id=None)


def _says_something(message: Message) -> bool:
    return bool(message.content or message.calls)


def _fenced(attachment: Attachment) -> str:
    """In a fence that is longer than any in the text."""
    fence = "```"
    while fence in attachment.text:
        fence += "`"
    return f"{attachment.name}:\n{fence}\n{attachment.text.rstrip()}\n{fence}"
