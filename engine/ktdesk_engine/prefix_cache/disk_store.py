"""Pages on disk: an index in memory, a hard limit of bytes, and a thread that writes behind.

Bytes are reserved before a page is queued, so the limit holds at every moment, with partial files. One process at
a time has the folder; the pages of other models in it count, and leave like any other when they were not used for
longest. What a reader finds wrong is deleted, and missing from then on.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO

from ktdesk_engine.errors import InUseError, ResourceError
from ktdesk_engine.prefix_cache.disk_index import DiskIndex
from ktdesk_engine.prefix_cache.page_file import PageName, file_bytes, read_page_file
from ktdesk_engine.prefix_cache.page_folder import StoredPage, remove_partial_files, stored_pages
from ktdesk_engine.prefix_cache.page_writer import PageWriter
from ktdesk_engine.prefix_cache.pages import PageBytes

LOCK_NAME = "lock"


class DiskStore:
    """The pages of one fingerprint, in a folder that holds those of others as well."""

    def __init__(self, folder: Path, fingerprint: bytes, limit_bytes: int) -> None:
        """ResourceError where the folder cannot be used, or another process has it."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.num_rejected = 0
        """Torn, foreign or stale files that were deleted instead of served."""
        self._fingerprint = fingerprint
        self._lock_file = lock_folder(folder)
        self._lock = threading.Lock()
        remove_partial_files(folder)
        self._index = DiskIndex(stored_pages(folder))
        self._pending: dict[str, StoredPage] = {}
        """Queued, or being written; their bytes are reserved."""
        self._make_room(0)
        self._writer = PageWriter(folder, self._end_write)

    @property
    def num_bytes(self) -> int:
        """Of all pages, with those that are still to be written."""
        with self._lock:
            return self._num_bytes

    @property
    def num_written(self) -> int:
        return self._writer.num_written

    @property
    def num_failed_writes(self) -> int:
        """The disk was full, or refused."""
        return self._writer.num_failed

    @property
    def has_room(self) -> bool:
        """Whether the writer keeps up."""
        return self._writer.has_room

    def has(self, digest: bytes) -> bool:
        """Whether there is a file; only `read` knows whether it is good. Any thread may ask."""
        return self._path_of(digest) in self._index

    def write(self, digest: bytes, key: bytes, content: PageBytes, used_ns: int) -> bool:
        """Queues a page. False where it is there, or does not fit beside what is still to be written."""
        name = PageName(self._fingerprint, digest, key)
        page = StoredPage(name.relative_path, file_bytes(name, content), used_ns)
        with self._lock:
            if page.relative_path in self._pending or page.relative_path in self._index:
                return False
            if not self._make_room(page.num_bytes):
                return False
            self._pending[page.relative_path] = page
        self._writer.put(name, content, used_ns)
        return True

    def read(self, digest: bytes, key: bytes, page_bytes: int) -> PageBytes | None:
        """A page as it was written; None, and the file gone, where it is not that."""
        name = PageName(self._fingerprint, digest, key)
        content = read_page_file(self.folder, name, page_bytes)
        with self._lock:
            if content is None and name.relative_path in self._index:
                self.num_rejected += 1
                self._remove(name.relative_path)
        return content

    def touch(self, times_ns: Iterable[tuple[bytes, int]]) -> None:
        """(digest, when it was used) of pages; those that are not here are passed over."""
        used = {self._path_of(digest): used_ns for digest, used_ns in times_ns}
        with self._lock:
            for path, used_ns in used.items():
                if path in self._index:
                    self._index.touch(path, used_ns)
                elif path in self._pending:
                    self._pending[path] = self._pending[path]._replace(used_ns=used_ns)
        self._writer.touch(used)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Waits until all that is queued is written. False where that took too long."""
        return self._writer.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> None:
        """Writes what is queued, as far as the time allows, and lets go of the folder."""
        self.flush(timeout_seconds)
        self._writer.close()
        self._lock_file.close()

    def __enter__(self) -> DiskStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def check_integrity(self) -> None:
        """Once all is written: the index says what lies on the disk, and the limit holds."""
        self.flush()
        with self._lock:
            assert not self._pending
            assert self._index.num_bytes == sum(page.num_bytes for page in self._index) <= self.limit_bytes
            on_disk = {page.relative_path: page.num_bytes for page in stored_pages(self.folder)}
            assert on_disk == {page.relative_path: page.num_bytes for page in self._index}

    @property
    def _num_bytes(self) -> int:
        return self._index.num_bytes + sum(page.num_bytes for page in self._pending.values())

    def _path_of(self, digest: bytes) -> str:
        return PageName(self._fingerprint, digest, b"").relative_path

    def _end_write(self, name: PageName, is_written: bool) -> None:
        """On the writer's thread."""
        with self._lock:
            page = self._pending.pop(name.relative_path)
            if is_written:
                self._index.add(page)

    def _make_room(self, num_bytes: int) -> bool:
        """Deletes the longest unused; False, and nothing deleted, where that cannot be enough."""
        if self._num_bytes - self._index.num_bytes + num_bytes > self.limit_bytes:
            return False
        while self._num_bytes + num_bytes > self.limit_bytes:
            self._remove(self._index.oldest())
        return True

    def _remove(self, relative_path: str) -> None:
        (self.folder / relative_path).unlink(missing_ok=True)
        self._index.remove(relative_path)


def lock_folder(folder: Path) -> IO[str]:
    """Makes the folder; it is this process's alone for as long as the file is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock_file = (folder / LOCK_NAME).open("a")
    except OSError as error:
        raise ResourceError(f"the cache folder {folder} cannot be used: {error.strerror}; choose another") from None
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock_file.close()
        raise InUseError(
            f"the cache folder {folder} is in use by another ktdesk: stop it, or choose another folder"
        ) from None
    return lock_file
