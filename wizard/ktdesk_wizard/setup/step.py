"""The steps of a setup, as values: what each is, how far it is, what came of it or why it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StepName = Literal["find", "probe", "measure", "plan", "rehearse", "confirm", "pull", "load", "smoke", "prove", "save"]
StepState = Literal["waiting", "running", "asking", "done", "failed", "cancelled"]
Unit = Literal["bytes", "samples"]

STEPS: tuple[StepName, ...] = (
    *("find", "probe", "measure", "plan", "rehearse", "confirm"),
    *("pull", "load", "smoke", "prove", "save"),
)
"""In order. `find` comes before anybody waits for a measurement, `rehearse` before anybody waits for a download."""
TITLES: dict[StepName, str] = {
    "find": "Find the model",
    "probe": "Look at the machine",
    "measure": "Measure memory and processor",
    "plan": "Plan the model",
    "rehearse": "Try the plan without weights",
    "confirm": "Go ahead?",
    "pull": "Fetch the model",
    "load": "Load it",
    "smoke": "Ask it something",
    "prove": "Measure it",
    "save": "Keep the setup",
}


@dataclass(frozen=True)
class FileAdvance:
    """How far one of several files is."""

    name: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Advance:
    """How far a running step is."""

    done: float
    total: float
    unit: Unit
    note: str = ""
    """What it does just now, or how fast."""
    files: tuple[FileAdvance, ...] = ()
    """Of what is fetched, in order."""

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 1.0


@dataclass(frozen=True)
class Failure:
    cause: str
    """One line."""
    advice: str
    """What to do next."""
    error: BaseException


@dataclass(frozen=True)
class Step:
    name: StepName
    state: StepState = "waiting"
    advance: Advance | None = None
    """While it runs, if it is known."""
    result: str = ""
    """When it is done, one line. While it asks: the question."""
    is_from_before: bool = False
    """It was done by an earlier run, and only taken over."""
    failure: Failure | None = None

    @property
    def title(self) -> str:
        return TITLES[self.name]
