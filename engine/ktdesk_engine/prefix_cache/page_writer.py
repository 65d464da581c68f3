"""The thread that writes pages behind the engine's back."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ktdesk_engine.prefix_cache.page_file import PageName, write_page_file
from ktdesk_engine.prefix_cache.pages import PageBytes

MAX_QUEUED_BYTES = 64 << 20
"""Pages that wait in memory; one more fits when less than this waits."""


class QueuedPage(NamedTuple):
    name: PageName
    content: PageBytes
    used_ns: int


class PageWriter:
    """Writes in order. `on_end(name, is written)` is called on its thread, after each."""

    def __init__(self, folder: Path, on_end: Callable[[PageName, bool], None]) -> None:
        self._folder = folder
        self._on_end = on_end
        self._changed = threading.Condition()
        self._queue: deque[QueuedPage] = deque()
        """The first one is being written."""
        self._touched: dict[str, int] = {}
        self._queued_bytes = 0
        self._is_closing = False
        self.num_written = 0
        self.num_failed = 0
        """The disk was full, or refused."""
        self._thread = threading.Thread(target=self._run, name="ktdesk-page-writer", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self._queued_bytes < MAX_QUEUED_BYTES

    def put(self, name: PageName, content: PageBytes, used_ns: int) -> None:
        with self._changed:
            self._queue.append(QueuedPage(name, content, used_ns))
            self._queued_bytes += content.nbytes
            self._changed.notify_all()

    def touch(self, times_ns: Mapping[str, int]) -> None:
        """Gives files, by relative path, the time of their last use: what a restart knows of it."""
        with self._changed:
            self._touched.update(times_ns)
            self._changed.notify_all()

    def flush(self, timeout_seconds: float | None) -> bool:
        """Waits until nothing is left to do. False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._touched, timeout_seconds)

    def close(self) -> None:
        """What still waits is not written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._touched or self._is_closing)
                if self._is_closing:
                    return
                page = self._queue[0] if self._queue else None
                touched = dict(self._touched)
            if page is not None:
                self._write(page)
            self._set_times(touched)
            self._done(page, touched)

    def _write(self, page: QueuedPage) -> None:
        try:
            write_page_file(self._folder, page.name, page.content)
        except OSError:
            self.num_failed += 1
            self._on_end(page.name, False)
        else:
            self.num_written += 1
            self._set_times({page.name.relative_path: page.used_ns})
            self._on_end(page.name, True)

    def _set_times(self, times_ns: Mapping[str, int]) -> None:
        for path, time_ns in times_ns.items():
            with suppress(OSError):  # it is not there yet, or was deleted in the meantime
                os.utime(self._folder / path, ns=(time_ns, time_ns))

    def _done(self, page: QueuedPage | None, touched: dict[str, int]) -> None:
        with self._changed:
            if page is not None:
                self._queue.popleft()
                self._queued_bytes -= page.content.nbytes
            self._touched = {path: at for path, at in self._touched.items() if touched.get(path) != at}
            self._changed.notify_all()
