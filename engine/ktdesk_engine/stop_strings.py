"""Ends an answer at a stop string, even where it comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Passed(NamedTuple):
    text: str
    """What may be shown."""
    stop: str | None = None
    """The stop string that came."""

    @property
    def is_stopped(self) -> bool:
        return self.stop is not None


class StopStrings:
    """Holds back text that may turn out to be the beginning of a stop string, and nothing else."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> Passed:
        """The text that is now sure; a stop string and what follows it never comes out."""
        text = self._held + text
        found = [(index, stop) for stop in self._stops if (index := text.find(stop)) >= 0]
        if found:
            self._held = ""
            index, stop = min(found)
            return Passed(text[:index], stop)
        sure = len(text) - self._longest_beginning(text)
        self._held = text[sure:]
        return Passed(text[:sure])

    def flush(self) -> str:
        """What was held back: no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _longest_beginning(self, text: str) -> int:
        """Length of the longest end of text that begins a stop string."""
        lengths = (
            length
            for stop in self._stops
            for length in range(1, min(len(stop), len(text) + 1))
            if text.endswith(stop[:length])
        )
        return max(lengths, default=0)
