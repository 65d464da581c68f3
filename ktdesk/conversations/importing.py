"""Conversations from files: of our own, of ChatGPT's export and of Open WebUI's, as JSON or in a zip."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ktdesk.conversations.errors import ImportFormatError
from ktdesk.conversations.exporting import FORMAT, VERSION
from ktdesk.conversations.import_chatgpt import chatgpt_conversation, looks_like_chatgpt
from ktdesk.conversations.import_open_webui import looks_like_open_webui, open_webui_conversation
from ktdesk.conversations.messages import Conversation, message_of

MAX_BYTES = 2 << 30
ZIPPED_NAME = "conversations.json"
_COLUMNS = ("message_id", "parent_id", "role", "content", "created", "reasoning", "state")
_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Conversation]], ...] = (
    (looks_like_chatgpt, chatgpt_conversation),
    (looks_like_open_webui, open_webui_conversation),
)


def read_conversations(path: Path) -> list[Conversation]:
    """Those of a file. What has no message is left out. Raises ImportFormatError and OSError."""
    facts = _json(path)
    if isinstance(facts, dict) and facts.get("format") == FORMAT:
        return _ours(facts, path)
    items = facts if isinstance(facts, list) else [facts]
    conversations = [_read(item, path) for item in items]
    return [conversation for conversation in conversations if conversation.messages]


def _read(item: Any, path: Path) -> Conversation:
    for looks_like, read in _READERS:
        if looks_like(item):
            try:
                return read(item)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                title = str(item.get("title"))
                raise ImportFormatError(f"{path}: the conversation {title!r} is not as expected: {error!r}") from error
    raise ImportFormatError(f"{path} holds no conversations of ktdesk, ChatGPT or Open WebUI")


def _json(path: Path) -> Any:
    try:
        return json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ImportFormatError(f"{path} is no JSON: {error}") from error


def _bytes(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        if path.stat().st_size > MAX_BYTES:
            raise ImportFormatError(f"{path} is larger than {MAX_BYTES >> 30} GiB")
        return path.read_bytes()
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.rpartition("/")[2] == ZIPPED_NAME]
            if not names:
                raise ImportFormatError(f"{path}: there is no {ZIPPED_NAME} in this zip")
            if archive.getinfo(names[0]).file_size > MAX_BYTES:
                raise ImportFormatError(f"{path}: {names[0]} is larger than {MAX_BYTES >> 30} GiB")
            return archive.read(names[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ImportFormatError(f"{path}: {error}") from error


def _ours(facts: dict[str, Any], path: Path) -> list[Conversation]:
    if facts.get("version") != VERSION:
        raise ImportFormatError(f"{path} is of format version {facts.get('version')}; this ktdesk reads {VERSION}")
    try:
        return [_our_conversation(item) for item in facts["conversations"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ImportFormatError(f"{path} is not as ktdesk writes it: {error!r}") from error


def _our_conversation(facts: dict[str, Any]) -> Conversation:
    messages = {}
    for item in facts["messages"]:
        columns = {name: item[name] for name in _COLUMNS}
        message = message_of(columns, {name: value for name, value in item.items() if name not in _COLUMNS})
        messages[message.message_id] = message
    rest = {name: value for name, value in facts.items() if name not in ("messages", "tags")}
    return Conversation(0, **rest, tags=tuple(facts["tags"]), messages=messages)
