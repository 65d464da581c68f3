"""First picture, cost of a stream, and a long conversation: one run of the app."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from ktdesk.conversations.messages import Conversation, Message
from ktdesk.conversations.store import FILE, ConversationStore
from ktdesk.options import EngineOptions
from ktdesk.server_records import ServerRecord, write_record
from ktdesk.settings import Settings
from ktdesk.ui_benchmark.scripted_server import MODEL, PASSAGE, scripted_server
from ktdesk.ui_benchmark.terminal import AppInTerminal

NUM_MESSAGES = 500
LAST_WORDS = "the-very-last-words"
NUM_PAGES = 30
PAGE_UP, ENTER, ESCAPE, LIST = "\x1b[5~", "\r", "\x1b", "\x0c"


@dataclass(frozen=True)
class UiReport:
    columns: int
    rows: int
    tok_s: float
    stream_seconds: float
    first_picture_seconds: float
    """From the start of the process."""
    stream_cpu_share: float
    """Of one core, while the answer streamed."""
    idle_cpu_share: float
    terminal_bytes_s: float
    open_seconds: float
    """From the key to the end of a conversation of NUM_MESSAGES."""
    page_median_ms: float
    page_slowest_ms: float
    """From the key to the picture one page up in it."""
    memory_bytes: int

    def facts(self) -> dict[str, float]:
        return asdict(self)


def measure_ui(tok_s: float = 60.0, seconds: float = 20.0, columns: int = 140, rows: int = 40) -> UiReport:
    """Takes seconds and about as many again."""
    num_tokens = round(tok_s * seconds)
    with tempfile.TemporaryDirectory(prefix="ktdesk-ui-") as home, scripted_server(tok_s, num_tokens) as url:
        settings = Settings(home=home)
        _keep_long_conversation(settings.data_folder)
        write_record(settings, _record(url))
        with _app(home, columns, rows) as app:
            first = app.wait_for("Chat") - app.begun
            app.wait_for(f"● {MODEL}")
            idle = _share(app, 3.0)
            written = len(app.written)
            app.press("go" + ENTER)
            app.wait_for("moves", since=written)
            written = len(app.written)
            stream = _share(app, seconds * 0.9)
            bytes_s = (len(app.written) - written) / (seconds * 0.9)
            app.wait_for("prompt 32", since=written)
            opened = _open_seconds(app)
            pages = [app.response_seconds(PAGE_UP) for _ in range(NUM_PAGES)]
            return UiReport(
                columns,
                rows,
                tok_s,
                seconds,
                first,
                stream,
                idle,
                bytes_s,
                opened,
                statistics.median(pages) * 1e3,
                max(pages) * 1e3,
                app.memory_bytes,
            )


@contextmanager
def _app(home: str, columns: int, rows: int) -> Iterator[AppInTerminal]:
    app = AppInTerminal(home, columns, rows)
    try:
        yield app
        app.close_by_key()
    finally:
        app.close()


def _share(app: AppInTerminal, seconds: float) -> float:
    begun = app.cpu_seconds
    app.read_for(seconds)
    return (app.cpu_seconds - begun) / seconds


def _open_seconds(app: AppInTerminal) -> float:
    """The list has the newest first, and the long conversation is older than the answer's."""
    app.press(LIST)
    app.read_for(1.0)
    app.press("\x1b[B")
    app.read_for(0.5)
    written = len(app.written)
    begun = time.perf_counter()
    app.press(ENTER)
    opened = app.wait_for(LAST_WORDS, since=written) - begun
    app.read_for(3.0)
    app.press(ESCAPE)
    app.read_for(0.7)
    return opened


def _keep_long_conversation(folder: Path) -> None:
    messages = {}
    for number in range(1, NUM_MESSAGES + 1):
        text = PASSAGE if number % 2 == 0 else f"And what of part {number}?"
        if number == NUM_MESSAGES:
            text += LAST_WORDS
        messages[number] = Message(number, number - 1 or None, ("assistant", "user")[number % 2], text, 1.0)
    store = ConversationStore(folder / FILE)
    store.insert(Conversation(0, "Long", 1.0, 1.0, tip_id=NUM_MESSAGES, messages=messages))
    store.close()


def _record(url: str) -> ServerRecord:
    port = int(url.rpartition(":")[2])
    started = psutil.Process().create_time()
    return ServerRecord(os.getpid(), started, url, port, MODEL, "/nowhere", "", False, asdict(EngineOptions()))
