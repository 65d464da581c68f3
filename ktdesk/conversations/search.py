"""Full-text search over all messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ktdesk.conversations.store import ConversationStore

MARK_BEGIN, MARK_END = "\x02", "\x03"
NUM_WORDS = 12


@dataclass(frozen=True)
class Hit:
    conversation_id: int
    message_id: int
    title: str
    excerpt: str
    """What was found stands between MARK_BEGIN and MARK_END."""


def search(store: ConversationStore, text: str, limit: int = 50) -> list[Hit]:
    """Messages with all the words, the last as a beginning; or conversations with them in the title. Best first."""
    query = fts_query(text)
    if not query:
        return []
    with store.database.transaction() as db:
        rows = db.execute(
            "SELECT m.conversation, m.id, c.title, snippet(message_words, 0, ?, ?, '…', ?) "
            "FROM message_words w JOIN message m ON m.id = w.rowid JOIN conversation c ON c.id = m.conversation "
            "WHERE message_words MATCH ? ORDER BY rank LIMIT ?",
            (MARK_BEGIN, MARK_END, NUM_WORDS, query, limit),
        ).fetchall()
        pattern = "%" + re.sub(r"([%_\\])", r"\\\1", " ".join(text.split())) + "%"
        titled = db.execute(
            "SELECT id, coalesce(tip, 0), title, '' FROM conversation WHERE title LIKE ? ESCAPE '\\' "
            "ORDER BY changed DESC LIMIT ?",
            (pattern, limit),
        ).fetchall()
    return [Hit(*row) for row in (*titled, *rows)]


def fts_query(text: str) -> str:
    """Each word as it is: nothing in it is an operator."""
    words = re.findall(r"\w+", text, re.UNICODE)
    quoted = [f'"{word}"' for word in words]
    return " ".join([*quoted[:-1], quoted[-1] + "*"]) if quoted else ""
