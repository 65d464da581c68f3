"""Follows the transfers of a model's files: hashes what came, in order, and names a file that is whole and right."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ktdesk_wizard.download.state import Watcher
from ktdesk_wizard.errors import WrongBytesError

if TYPE_CHECKING:
    from ktdesk_wizard.download.transfer import FileTransfer

MAX_TRIES = 3
"""Times that a file is fetched before it is given up."""


class Hasher:
    """Steps are for one thread, commits for another."""

    def __init__(
        self, files: Sequence[FileTransfer], on_whole: Callable[[FileTransfer], None], watcher: Watcher
    ) -> None:
        self._files, self._on_whole, self._watcher = files, on_whole, watcher
        self._index, self._position, self._tries = 0, 0, 1
        self._digest = hashlib.sha256()
        self._disk_lock = threading.Lock()
        self.checked_bytes = 0

    def step(self) -> bool:
        """One stretch, or a file's end. False: there is nothing to do now. WrongBytesError after the last try."""
        if self._index == len(self._files):
            return False
        part = self._files[self._index].part
        if self._position == part.num_bytes:
            self._end_file()
            return True
        with self._disk_lock:
            data = part.checked_bytes(self._position)
        if data is None:
            return False
        self._digest.update(data)
        self._position += len(data)
        self.checked_bytes += len(data)
        return True

    def _end_file(self) -> None:
        file = self._files[self._index]
        found, expected = self._digest.hexdigest(), file.part.identity.sha256
        if expected is not None and found != expected:
            self._begin_again(file, found)
            return
        with self._disk_lock:
            file.part.commit()
            file.part.finish()
            file.is_whole = True
        self._on_whole(file)
        self._index, self._position, self._tries = self._index + 1, 0, 1
        self._digest = hashlib.sha256()

    def _begin_again(self, file: FileTransfer, found: str) -> None:
        name = file.part.target.name
        if self._tries == MAX_TRIES:
            with self._disk_lock:
                file.part.discard()
                file.is_whole = True  # nobody is to write to it any more
            raise WrongBytesError(
                f"{name}: fetched {MAX_TRIES} times, and its SHA-256 is {found}, not {file.part.identity.sha256}: "
                "the source has other bytes than it says; nothing of it was kept. Try another --source"
            )
        self._watcher.note(f"{name} is not what its hash says: it is fetched again")
        with self._disk_lock:
            file.part.drop_all()
        file.origins.distrust_first()
        self.checked_bytes -= self._position
        self._position, self._tries = 0, self._tries + 1
        self._digest = hashlib.sha256()

    def commit(self) -> None:
        """What came goes to the disk and into the journals."""
        with self._disk_lock:
            for file in self._files:
                if not file.is_whole:
                    file.part.commit()

    def close(self) -> None:
        try:
            self.commit()
        finally:
            for file in self._files:
                file.part.close()
