"""Conversations as Markdown, for people, and as JSON, whole, to be read in again."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ktdesk.conversations.messages import Conversation, Message

FORMAT: Final = "ktdesk-conversations"
VERSION: Final = 1
NAMES = {"user": "You", "assistant": "Answer", "tool": "Tool"}


def to_markdown(conversation: Conversation) -> str:
    """The branch that is read."""
    parts = [f"# {conversation.title}", f"*{_date(conversation.created)}*"]
    if conversation.system:
        parts += ["## System", conversation.system]
    for message in conversation.path:
        parts += _markdown_of(message)
    return "\n\n".join(parts) + "\n"


def to_json(conversations: list[Conversation]) -> str:
    """All branches."""
    facts = {"format": FORMAT, "version": VERSION, "conversations": [_facts(item) for item in conversations]}
    return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"


def file_name(conversation: Conversation, ending: str) -> str:
    """Without what some file system does not take."""
    kept = "".join(letter if letter.isalnum() or letter in " -_" else " " for letter in conversation.title)
    return f"{' '.join(kept.split())[:60].strip() or 'conversation'}.{ending}"


def write_new(folder: Path, name: str, text: str) -> Path:
    """Into a file that was not there: nothing is written over."""
    stem, _, ending = name.rpartition(".")
    number = 1
    while True:
        path = folder / (name if number == 1 else f"{stem} {number}.{ending}")
        try:
            with path.open("x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except FileExistsError:
            number += 1
        else:
            return path


def _markdown_of(message: Message) -> list[str]:
    who = NAMES[message.role] + (f" ({message.model})" if message.model else "")
    parts = [f"## {who}"]
    if message.reasoning:
        parts.append(f"<details><summary>Reasoning</summary>\n\n{message.reasoning.strip()}\n\n</details>")
    if message.sent_content:
        parts.append(message.sent_content)
    parts += [f"Calls `{call.name}`:\n\n```json\n{call.arguments}\n```" for call in message.calls]
    if message.state != "done":
        parts.append(f"*({message.failure or 'stopped'})*")
    return parts


def _facts(conversation: Conversation) -> dict[str, Any]:
    facts = asdict(conversation)
    del facts["conversation_id"]
    facts["messages"] = [
        {**message.facts(), **_columns(message)}
        for message in sorted(conversation.messages.values(), key=lambda message: message.message_id)
    ]
    return facts


def _columns(message: Message) -> dict[str, Any]:
    names = ("message_id", "parent_id", "role", "content", "created", "reasoning", "state")
    return {name: getattr(message, name) for name in names}


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
