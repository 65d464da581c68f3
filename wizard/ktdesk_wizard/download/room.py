"""Whether there is room for a whole set, and what an error of the disk means to people."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ktdesk_wizard.errors import HomeFolderError

RESERVE_BYTES = 256 << 20
"""That stay free: for journals, and for whoever else writes there."""
ANOTHER_FOLDER = "or name another folder with --home DIR or KTDESK_HOME"


def check_room(folder: Path, needed_bytes: int) -> None:
    """Before anything is fetched. needed_bytes: of the whole set, less what is there."""
    status = os.statvfs(folder)
    free_bytes = status.f_bavail * status.f_frsize
    if needed_bytes and free_bytes < needed_bytes + RESERVE_BYTES:
        raise HomeFolderError(
            f"{folder}: {_gib(needed_bytes)} are still to come and {_gib(RESERVE_BYTES)} should stay free, but "
            f"{_gib(free_bytes)} are free on this disk: make room, {ANOTHER_FOLDER}, or try it with --force"
        )


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """What the system refuses about the folder becomes a HomeFolderError."""
    try:
        yield
    except OSError as error:
        raise HomeFolderError(f"{error.filename or folder}: {_problem(error)}") from error


def _problem(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full. What came is kept: make room and pull again, {ANOTHER_FOLDER}"
    if error.errno == errno.EFBIG:
        return f"files may not be as large as that here (ulimit -f, or the kind of disk): pull again {ANOTHER_FOLDER}"
    return f"cannot be written: {error.strerror or error}; make it writable, {ANOTHER_FOLDER}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.2f} GiB"
