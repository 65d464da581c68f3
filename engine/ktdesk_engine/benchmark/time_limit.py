"""The time that a measurement of many parts has: on a slow or busy machine each part takes fewer turns, so that all of
them come to an end in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf

Clock = Callable[[], float]
"""In seconds."""


class TimeLimit:
    def __init__(self, seconds: float = inf, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self.num_taken = self.num_usual = 0
        """Turns, and how many there would be if there were time."""

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._end

    @property
    def share(self) -> float:
        """Of the usual turns, those that were taken."""
        return self.num_taken / self.num_usual if self.num_usual else 1.0

    def turns(self, usual: int, num_parts: int = 1) -> Iterator[int]:
        """Of a part that begins now, the first of so many that are still to come: as many as there is time for, with
        what the others need set aside; one at least. Whether there is time for that, `is_over` says."""
        self.num_usual += usual
        begin = self._clock()
        return self._turns(usual, begin + (self._end - begin) / num_parts)

    def _turns(self, usual: int, part_end: float) -> Iterator[int]:
        for turn in range(usual):
            if turn and self._clock() >= part_end:
                return
            self.num_taken += 1
            yield turn
