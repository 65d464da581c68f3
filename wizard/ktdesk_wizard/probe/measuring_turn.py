"""One measurement at a time: two at once would measure each other. Of all processes with the same data folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ktdesk_wizard.probe.measurement import FILE

SECONDS_BETWEEN_TRIES = 0.2


@contextmanager
def measuring_turn(folder: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Whether another process has kept a new measurement while this one waited for its turn.

    waiting: called again and again while it waits. May raise, to stop.
    """
    before = _kept_at(folder)
    descriptor = os.open(folder, os.O_RDONLY)  # the folder is the lock: nothing of it is left behind
    try:
        has_waited = False
        while not _taken(descriptor):
            has_waited = True
            waiting()
            time.sleep(SECONDS_BETWEEN_TRIES)
        yield has_waited and _kept_at(folder) not in (None, before)
    finally:
        os.close(descriptor)


def _taken(lock: int) -> bool:
    """Until it is closed. A file system without locks lets everybody measure."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _kept_at(folder: Path) -> int | None:
    try:
        return (folder / FILE).stat().st_mtime_ns
    except OSError:
        return None
