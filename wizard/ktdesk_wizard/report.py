"""How a long job tells what it does: the job knows no screen."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Where progress is shown."""

    def step(self, what: str) -> None:
        """Something new began."""

    def advance(self, done_bytes: int, total_bytes: int) -> None:
        """How far the step is."""


class Silence:
    """A report that nobody reads."""

    def step(self, what: str) -> None: ...

    def advance(self, done_bytes: int, total_bytes: int) -> None: ...
