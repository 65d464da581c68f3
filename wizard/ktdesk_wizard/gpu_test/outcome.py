"""What came of the checks: figures, what they should reach, and causes where something broke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "slow", "failed", "skipped", "untested"]
"""slow: right, but a figure does not reach its aim. skipped: there is nothing to check here, or no room for it.
untested: the time was over."""


@dataclass(frozen=True)
class Figure:
    """One number that a check found."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    """What it should reach."""
    at_most: float | None = None

    @property
    def is_reached(self) -> bool:
        is_low = self.at_least is not None and not self.value >= self.at_least
        is_high = self.at_most is not None and not self.value <= self.at_most
        return not (is_low or is_high)


@dataclass(frozen=True)
class Outcome:
    """Of one check."""

    check: str
    status: Status
    figures: tuple[Figure, ...] = ()
    """Those that were found, also where the check broke later."""
    cause: str = ""
    """Why it failed or was skipped, in one line."""
    seconds: float = 0.0


@dataclass(frozen=True)
class GpuReport:
    """Of all checks, in their order."""

    accelerator: str
    signals_by: str
    is_rehearsal: bool
    """On an accelerator that is no GPU: its figures say nothing of one."""
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def has_failed(self) -> bool:
        return self.num("failed") > 0

    @property
    def untested(self) -> tuple[str, ...]:
        """Checks for which no time was left: nothing is known of what they look at."""
        return tuple(outcome.check for outcome in self.outcomes if outcome.status == "untested")

    def num(self, status: Status) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)
