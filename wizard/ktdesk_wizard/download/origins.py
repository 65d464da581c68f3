"""Where one file's bytes come from: its sources in order, where each was found to be, and who is to be left alone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.failures import ExpiredError, LieError, PassingError
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import Location, RemoteFile, locate

MAX_LIES = 12
"""In a row, of one source, with nothing right between them."""
MAX_EXPIRED = 6


@dataclass(frozen=True)
class Patience:
    stall_seconds: float = 15.0
    """Without bytes, then a connection is given up."""
    backoff_seconds: float = 1.0
    """After the first failure; twice so much after each further one."""
    max_backoff_seconds: float = 30.0
    give_up_seconds: float = 300.0
    """Without progress from anywhere."""
    progress_bytes: int = 64 << 10
    """That is progress. Single bytes from servers that stall again and again are none."""


@dataclass
class Origin:
    """One source of the file."""

    file: RemoteFile
    location: Location | None = None
    failures: int = 0
    not_before: float = 0.0
    num_lies: int = 0
    num_expired: int = 0
    refusal: FetchError | None = None
    """It is of no use to ask again."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Origins:
    """For several threads."""

    def __init__(self, http: Http, files: Sequence[RemoteFile], patience: Patience) -> None:
        self._http, self._patience = http, patience
        self._origins = [Origin(file) for file in files]
        self.ignores_ranges = False
        """One of them sent a whole file for a range: one connection alone must fetch it."""

    def wait_seconds(self) -> float:
        """Until one may be asked. FetchError where none is left."""
        return max(self.next().not_before - time.monotonic(), 0.0)

    def locate(self, origin: Origin) -> Location:
        """Once for all threads. PassingError and FetchError as `locate` raises them."""
        with origin.lock:
            if origin.location is None:
                origin.location = locate(self._http, origin.file)
            return origin.location

    def next(self) -> Origin:
        """The first that need not be left alone; else that which need not soonest. FetchError where none is left."""
        usable = [origin for origin in self._origins if origin.refusal is None]
        if not usable:
            refusal = self._origins[0].refusal
            assert refusal is not None
            raise refusal
        now = time.monotonic()
        return next((origin for origin in usable if origin.not_before <= now), None) or min(
            usable, key=lambda origin: origin.not_before
        )

    def succeeded(self, origin: Origin) -> None:
        """Bytes came as they should."""
        origin.failures = origin.num_lies = origin.num_expired = 0

    def failed(self, origin: Origin, error: PassingError) -> None:
        """Leaves it alone for a while; for good if it goes on to answer what is of no use."""
        origin.num_lies += isinstance(error, LieError)
        if isinstance(error, ExpiredError):
            origin.location = None
            origin.num_expired += 1
        if origin.num_lies >= MAX_LIES or origin.num_expired >= MAX_EXPIRED:
            origin.refusal = FetchError(f"{origin.file.path}: {error}, again and again; try another --source")
        now = time.monotonic()
        if now < origin.not_before:  # others failed with it
            if error.wait_seconds is not None:
                origin.not_before = max(origin.not_before, now + error.wait_seconds)
            return
        origin.failures += 1
        wait = error.wait_seconds
        if wait is None:
            longest = self._patience.backoff_seconds * 2 ** min(origin.failures - 1, 16)
            wait = min(longest, self._patience.max_backoff_seconds) * random.uniform(0.5, 1.0)
            if isinstance(error, ExpiredError) and origin.num_expired == 1:
                wait = 0.0
        origin.not_before = now + wait

    def refused(self, origin: Origin, error: FetchError) -> None:
        origin.refusal = error

    def distrust_first(self) -> None:
        """It gave a whole file that was wrong: the others first, if there are any."""
        self._origins = self._origins[1:] + self._origins[:1]
