"""The database of conversations: one SQLite file. One that is damaged is kept aside, and a new one begun."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ktdesk.conversations.errors import DamagedStoreError, NotSavedError

VERSION = 1
BUSY_SECONDS = 5.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS conversation (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    changed REAL NOT NULL,
    system TEXT NOT NULL DEFAULT '',
    tools TEXT NOT NULL DEFAULT '',
    sampling TEXT NOT NULL DEFAULT '{}',
    tip INTEGER
);
CREATE INDEX IF NOT EXISTS conversation_changed ON conversation (changed);
CREATE TABLE IF NOT EXISTS tag (
    conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    parent INTEGER,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    reasoning TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL,
    created REAL NOT NULL,
    facts TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS message_conversation ON message (conversation);
CREATE VIRTUAL TABLE IF NOT EXISTS message_words USING fts5 (content, tokenize = 'unicode61 remove_diacritics 2');
CREATE TRIGGER IF NOT EXISTS message_gone AFTER DELETE ON message BEGIN
    DELETE FROM message_words WHERE rowid = old.id;
END;
"""
"""Another process may make it at the same time. message_words: what is searched, of messages that are done; its rowid
is the message's."""


class Database:
    """Threads may share it: one at a time is in a `transaction`. path None: in memory, where nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.kept_aside: Path | None = None
        """A damaged database, if one was found."""
        self._lock = threading.RLock()
        try:
            self._connection = self._open()
        except DamagedStoreError:
            self.kept_aside = self._keep_aside()
            self._connection = self._open()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Written whole or not at all. Raises NotSavedError and DamagedStoreError."""
        with self._lock:
            try:
                with self._connection:
                    yield self._connection
            except sqlite3.OperationalError as error:
                raise NotSavedError(f"{self.path or 'memory'}: {error}") from error
            except sqlite3.DatabaseError as error:
                raise DamagedStoreError(f"{self.path}: {error}") from error

    def begin_anew(self) -> None:
        """After DamagedStoreError: the damaged one is kept aside."""
        with self._lock:
            self._connection.close()
            self.kept_aside = self._keep_aside()
            self._connection = self._open()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _open(self) -> sqlite3.Connection:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            connection = sqlite3.connect(
                self.path or ":memory:", timeout=BUSY_SECONDS, check_same_thread=False, isolation_level="IMMEDIATE"
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.OperationalError as error:
            raise NotSavedError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DamagedStoreError(f"{self.path}: {error}") from error
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")  # a kill loses nothing that was written
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise NotSavedError(f"{self.path} is of a newer ktdesk (format {version}): take that, or another --home")
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        else:
            connection.execute("SELECT count(*) FROM (SELECT id FROM conversation LIMIT 1)").fetchone()
            connection.execute("SELECT count(*) FROM (SELECT id FROM message LIMIT 1)").fetchone()

    def _keep_aside(self) -> Path:
        """With what belongs to it, under a name of its own. Nothing is deleted."""
        assert self.path is not None
        stamp = time.strftime("%Y%m%d-%H%M%S")
        aside = self.path.with_name(f"{self.path.stem}-damaged-{stamp}{self.path.suffix}")
        number = 1
        while aside.exists():
            number += 1
            aside = self.path.with_name(f"{self.path.stem}-damaged-{stamp}-{number}{self.path.suffix}")
        for ending in ("", "-wal", "-shm"):
            old = self.path.with_name(self.path.name + ending)
            if old.exists():
                old.rename(aside.with_name(aside.name + ending))
        return aside
