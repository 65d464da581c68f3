"""How far loading is, and how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["checking", "packing"]
"""checking: weights that stay in the file are looked at; packing: the others go into memory."""

WINDOW_SECONDS = 5.0
"""The pace is that of the last moments: a file that is half in memory already begins faster than it goes on."""
MIN_SECONDS = 1.0
"""Before that there is nothing to judge by."""


@dataclass(frozen=True)
class LoadProgress:
    """done_bytes and total_bytes are of the file, over all stages."""

    stage: Stage
    done_bytes: int
    total_bytes: int
    bytes_per_second: float | None = None
    """Of the last moments; None as long as there is too little to judge by."""

    @property
    def remaining_seconds(self) -> float | None:
        """At the pace of the last moments."""
        if not self.bytes_per_second:
            return None
        return (self.total_bytes - self.done_bytes) / self.bytes_per_second


class LoadMeter:
    """Counts what was read, and tells."""

    def __init__(
        self,
        total_bytes: int,
        progress: Callable[[LoadProgress], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_bytes = total_bytes
        self._progress = progress
        self._clock = clock
        self._marks = deque([(clock(), 0)])
        """(time, bytes done): the newest that is older than the window, and those inside."""

    def advance(self, stage: Stage, num_bytes: int) -> None:
        now, done_bytes = self._clock(), self._marks[-1][1] + num_bytes
        self._marks.append((now, done_bytes))
        while len(self._marks) > 2 and now - self._marks[1][0] >= WINDOW_SECONDS:
            self._marks.popleft()
        began, before = self._marks[0]
        seconds = now - began
        pace = (done_bytes - before) / seconds if seconds >= MIN_SECONDS else None
        self._progress(LoadProgress(stage, done_bytes, self._total_bytes, pace))
