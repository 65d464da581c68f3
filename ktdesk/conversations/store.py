"""The conversations that are kept, read and written one at a time."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ktdesk.conversations.database import Database
from ktdesk.conversations.messages import (
    UNTITLED,
    Conversation,
    Message,
    Role,
    Summary,
    message_of,
)

FILE = "conversations.db"
_COLUMNS = "id, parent, role, content, created, reasoning, state, facts"


class ConversationStore:
    """Threads may share it. Raises NotSavedError where the disk is full or the file locked, DamagedStoreError where
    it cannot be read."""

    def __init__(self, path: Path | None) -> None:
        self.database = Database(path)

    def create(self, title: str = UNTITLED, system: str = "", sampling: dict[str, float] | None = None) -> Conversation:
        now = time.time()
        with self.database.transaction() as db:
            cursor = db.execute(
                "INSERT INTO conversation (title, created, changed, system, sampling) VALUES (?, ?, ?, ?, ?)",
                (title, now, now, system, json.dumps(sampling or {})),
            )
        return Conversation(_id(cursor), title, now, now, system, dict(sampling or {}))

    def load(self, conversation_id: int) -> Conversation | None:
        with self.database.transaction() as db:
            row = db.execute(
                "SELECT title, created, changed, system, sampling, tools, tip FROM conversation WHERE id = ?",
                (conversation_id,),
            ).fetchone()
            if row is None:
                return None
            title, created, changed, system, sampling, tools, tip = row
            rows = db.execute(f"SELECT {_COLUMNS} FROM message WHERE conversation = ?", (conversation_id,)).fetchall()
            tags = self._tags(db, conversation_id)
        messages = {message.message_id: message for message in map(_message, rows)}
        return Conversation(
            conversation_id, title, created, changed, system, json.loads(sampling), tools, tags, tip, messages
        )

    def summaries(self, tag: str | None = None, limit: int = 1000) -> list[Summary]:
        """The newest first."""
        with self.database.transaction() as db:
            rows: list[tuple[int, str, float, int]] = db.execute(
                "SELECT c.id, c.title, c.changed, (SELECT count(*) FROM message m WHERE m.conversation = c.id) "
                "FROM conversation c WHERE ?1 IS NULL OR EXISTS "
                "(SELECT 1 FROM tag t WHERE t.conversation = c.id AND t.name = ?1) ORDER BY c.changed DESC LIMIT ?2",
                (tag, limit),
            ).fetchall()
            tagged = db.execute("SELECT conversation, name FROM tag ORDER BY name").fetchall()
        tags: dict[int, list[str]] = {}
        for conversation_id, name in tagged:
            tags.setdefault(conversation_id, []).append(name)
        return [Summary(*row, tuple(tags.get(row[0], ()))) for row in rows]

    def tags(self) -> list[str]:
        with self.database.transaction() as db:
            return [name for (name,) in db.execute("SELECT DISTINCT name FROM tag ORDER BY name")]

    def add(self, conversation: Conversation, parent_id: int | None, role: Role, content: str, **more: Any) -> Message:
        """A new message; the branch that is read ends with it."""
        message = Message(0, parent_id, role, content, time.time(), **more)
        with self.database.transaction() as db:
            message = replace(message, message_id=self._insert(db, conversation.conversation_id, message))
            self._set_tip(db, conversation.conversation_id, message.message_id, message.created)
        conversation.put(message)
        conversation.tip_id, conversation.changed = message.message_id, message.created
        return message

    def save(self, conversation_id: int, message: Message) -> None:
        """A message as it is now, while it streams and when it is done."""
        facts = json.dumps(message.facts(), ensure_ascii=False)
        with self.database.transaction() as db:
            db.execute(
                "UPDATE message SET content = ?, reasoning = ?, state = ?, facts = ? WHERE id = ?",
                _clean((message.content, message.reasoning, message.state, facts, message.message_id)),
            )
            if message.state != "streaming":
                _index(db, message)
                db.execute("UPDATE conversation SET changed = ? WHERE id = ?", (time.time(), conversation_id))

    def set_tip(self, conversation: Conversation, tip_id: int | None) -> None:
        conversation.tip_id = tip_id
        with self.database.transaction() as db:
            self._set_tip(db, conversation.conversation_id, tip_id, None)

    def describe(self, conversation: Conversation) -> None:
        """Keeps what is said of the conversation itself: title, system prompt, sampling, tools, tags."""
        values = (
            conversation.title,
            conversation.system,
            json.dumps(conversation.sampling),
            conversation.tools,
            conversation.conversation_id,
        )
        with self.database.transaction() as db:
            db.execute(
                "UPDATE conversation SET title = ?, system = ?, sampling = ?, tools = ? WHERE id = ?", _clean(values)
            )
            db.execute("DELETE FROM tag WHERE conversation = ?", (conversation.conversation_id,))
            self._add_tags(db, conversation.conversation_id, conversation.tags)

    def delete(self, conversation_id: int) -> None:
        with self.database.transaction() as db:
            db.execute("DELETE FROM message WHERE conversation = ?", (conversation_id,))
            db.execute("DELETE FROM conversation WHERE id = ?", (conversation_id,))

    def insert(self, conversation: Conversation) -> Conversation:
        """A conversation from elsewhere, or a copy: all its messages, under new ids. Its tip is one of its own ids."""
        new_ids: dict[int, int] = {}
        with self.database.transaction() as db:
            cursor = db.execute(
                "INSERT INTO conversation (title, created, changed, system, sampling, tools) VALUES (?, ?, ?, ?, ?, ?)",
                _clean(
                    (
                        conversation.title,
                        conversation.created,
                        conversation.changed,
                        conversation.system,
                        json.dumps(conversation.sampling),
                        conversation.tools,
                    )
                ),
            )
            conversation_id = _id(cursor)
            for message in conversation.messages.values():  # parents come before their children
                parent_id = None if message.parent_id is None else new_ids[message.parent_id]
                new_ids[message.message_id] = self._insert(db, conversation_id, replace(message, parent_id=parent_id))
            tip = None if conversation.tip_id is None else new_ids[conversation.tip_id]
            db.execute("UPDATE conversation SET tip = ? WHERE id = ?", (tip, conversation_id))
            self._add_tags(db, conversation_id, conversation.tags)
        loaded = self.load(conversation_id)
        assert loaded is not None
        return loaded

    def end_interrupted(self) -> int:
        """Answers that were streaming when the app was killed: they stay as far as they came. How many there were."""
        with self.database.transaction() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM message WHERE state = 'streaming'").fetchall()
            for message in map(_message, rows):
                db.execute("UPDATE message SET state = 'stopped' WHERE id = ?", (message.message_id,))
                _index(db, message)
        return len(rows)

    def close(self) -> None:
        self.database.close()

    def _insert(self, db: sqlite3.Connection, conversation_id: int, message: Message) -> int:
        facts = json.dumps(message.facts(), ensure_ascii=False)
        cursor = db.execute(
            "INSERT INTO message (conversation, parent, role, content, reasoning, state, created, facts) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            _clean(
                (
                    conversation_id,
                    message.parent_id,
                    message.role,
                    message.content,
                    message.reasoning,
                    message.state,
                    message.created,
                    facts,
                )
            ),
        )
        if message.state != "streaming":
            _index(db, replace(message, message_id=_id(cursor)))
        return _id(cursor)

    def _set_tip(self, db: sqlite3.Connection, conversation_id: int, tip_id: int | None, changed: float | None) -> None:
        db.execute(
            "UPDATE conversation SET tip = ?, changed = coalesce(?, changed) WHERE id = ?",
            (tip_id, changed, conversation_id),
        )

    def _add_tags(self, db: sqlite3.Connection, conversation_id: int, tags: Iterable[str]) -> None:
        db.executemany("INSERT OR IGNORE INTO tag VALUES (?, ?)", [(conversation_id, tag) for tag in tags])

    def _tags(self, db: sqlite3.Connection, conversation_id: int) -> tuple[str, ...]:
        rows = db.execute("SELECT name FROM tag WHERE conversation = ? ORDER BY name", (conversation_id,))
        return tuple(name for (name,) in rows)


def _index(db: sqlite3.Connection, message: Message) -> None:
    db.execute("DELETE FROM message_words WHERE rowid = ?", (message.message_id,))
    if message.content:
        values = _clean((message.message_id, message.content))
        db.execute("INSERT INTO message_words (rowid, content) VALUES (?, ?)", values)


def _message(row: Sequence[Any]) -> Message:
    message_id, parent_id, role, content, created, reasoning, state, facts = row
    columns = {"message_id": message_id, "parent_id": parent_id, "role": role, "content": content}
    columns |= {"created": created, "reasoning": reasoning, "state": state}
    return message_of(columns, json.loads(facts))


def _clean(values: Sequence[Any]) -> tuple[Any, ...]:
    """Lone surrogates are no UTF-8, which is what SQLite keeps."""
    return tuple(value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for value in values)


def _id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid
