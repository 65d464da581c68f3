"""Which bytes of a file are there: intervals [start, end), apart from each other and in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Interval(NamedTuple):
    start: int
    end: int
    """The byte after the last."""

    @property
    def num_bytes(self) -> int:
        return self.end - self.start


class ByteMap:
    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in intervals:
            self.add(start, end)

    def __iter__(self) -> Iterator[Interval]:
        return map(Interval, self._starts, self._ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteMap) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __repr__(self) -> str:
        return f"ByteMap({[tuple(interval) for interval in self]})"

    @property
    def num_bytes(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """Merges with what it touches or overlaps."""
        if start >= end:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        kept: list[tuple[int, int]] = []
        if first < last:
            kept = [(self._starts[first], start), (end, self._ends[last - 1])]
        kept = [(left, right) for left, right in kept if left < right]
        self._starts[first:last] = [left for left, _ in kept]
        self._ends[first:last] = [right for _, right in kept]

    def first(self) -> Interval | None:
        return Interval(self._starts[0], self._ends[0]) if self._starts else None

    def at_or_after(self, position: int) -> Interval | None:
        """What is there from a position on: the rest of the interval that it lies in, or the next one."""
        index = bisect_right(self._ends, position)
        if index == len(self._starts):
            return None
        return Interval(max(self._starts[index], position), self._ends[index])

    def covers(self, start: int, end: int) -> bool:
        found = self.at_or_after(start)
        return start >= end or (found is not None and found.start == start and found.end >= end)
