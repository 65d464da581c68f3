"""Whether the files of a stored model are what their hashes say, and removing a model."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ktdesk_wizard.errors import StoreError
from ktdesk_wizard.store.models import JOURNAL_SUFFIX, PART_SUFFIX, StoredModel
from ktdesk_wizard.store.record import StoredFile, lock_path, remove_if_empty, write_record

CHUNK_BYTES = 8 << 20

Finding = Literal["right", "wrong", "missing", "no hash is known"]
Advance = Callable[[int], None]
"""Told how many more bytes were read."""


@dataclass(frozen=True)
class CheckedFile:
    path: Path
    finding: Finding
    sha256: str | None
    """What it is. None: it was not read."""
    expected: str | None


def sha256_of(path: Path, advance: Advance = lambda num_bytes: None) -> str:
    """Of a whole file."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(CHUNK_BYTES)
        view = memoryview(buffer)
        while num_bytes := file.readinto(buffer):
            digest.update(view[:num_bytes])
            advance(num_bytes)
    return digest.hexdigest()


def is_checked(model: StoredModel, file: StoredFile) -> bool:
    """Whether its hash was found right, and it has not been written since."""
    try:
        status = model.path_of(file).stat()
    except OSError:
        return False
    return status.st_size == file.num_bytes and status.st_mtime_ns == file.checked_ns


def verify(model: StoredModel, advance: Advance = lambda num_bytes: None) -> Iterator[CheckedFile]:
    """Reads every file. What it finds is noted, so that a pull fetches again what is wrong, and that alone."""
    record = model.record
    for file in model.record.files:
        path = model.path_of(file)
        checked = _check(path, file, advance)
        if file.sha256 is not None and model.record_path is not None:
            changed_ns = path.stat().st_mtime_ns if checked.finding == "right" else None
            record = record.with_file(replace(file, checked_ns=changed_ns))
            write_record(model.record_path, record)
        yield checked


def _check(path: Path, file: StoredFile, advance: Advance) -> CheckedFile:
    if not path.is_file():  # a pipe would be waited for
        return CheckedFile(path, "missing", None, file.sha256)
    found = sha256_of(path, advance)
    if file.sha256 is None:
        return CheckedFile(path, "no hash is known", found, None)
    return CheckedFile(path, "right" if found == file.sha256 else "wrong", found, file.sha256)


def remove(model: StoredModel, store: Path) -> int:
    """Deletes its files, also those that are not whole, its record, and folders that become empty. Bytes freed.

    Of a link only the link goes: the file that it was made to stays.
    """
    if model.record_path is None and len(model.record.files) > 1 and model.state == "partial":
        raise StoreError(f"{model.folder}: of {model.name} files are missing: remove what is left of it by hand")
    with _lock(model):
        return _remove(model, store)


@contextlib.contextmanager
def _lock(model: StoredModel) -> Iterator[None]:
    """That a pull holds while it goes on."""
    if model.record_path is None:
        yield
        return
    path = lock_path(model.folder, model.record.quantization)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{model.name} is being fetched: stop that first") from None
        yield


def _remove(model: StoredModel, store: Path) -> int:
    freed_bytes = 0
    for file in model.record.files:
        path = model.path_of(file)
        for each in (path, Path(f"{path}{PART_SUFFIX}"), Path(f"{path}{JOURNAL_SUFFIX}")):
            freed_bytes += _remove_file(each)
    if model.record_path is not None:
        model.record_path.unlink(missing_ok=True)
        lock_path(model.folder, model.record.quantization).unlink(missing_ok=True)
    for folder in {model.folder, *(model.path_of(file).parent for file in model.record.files)}:
        remove_if_empty(folder, store)
    return freed_bytes


def _remove_file(path: Path) -> int:
    try:
        status = path.lstat()
        path.unlink()
    except FileNotFoundError:
        return 0
    is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return status.st_blocks * 512 if is_ours else 0
