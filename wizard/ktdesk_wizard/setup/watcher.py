"""Who is told how far a setup is, and the report that hands it on from what a step calls."""

from __future__ import annotations

from typing import Protocol

from ktdesk_wizard.setup.step import FileAdvance, StepName, Unit


class Watcher(Protocol):
    """Who is told how far a step is. Each of them may raise, to stop."""

    def advance(
        self, name: StepName, done: float, total: float, unit: Unit, note: str = "", files: tuple[FileAdvance, ...] = ()
    ) -> None: ...

    def check_cancelled(self) -> None: ...

    def ask(self, question: str) -> None: ...


class StepReport:
    """A `Report` for what a step calls."""

    def __init__(self, watcher: Watcher, name: StepName) -> None:
        self._watcher, self._name, self._note = watcher, name, ""
        self._files: tuple[FileAdvance, ...] = ()

    def step(self, what: str) -> None:
        self._note = what
        self._watcher.advance(self._name, 0, 0, "bytes", what)

    def note(self, text: str) -> None:
        self._note = text

    def files(self, files: tuple[FileAdvance, ...]) -> None:
        self._files = files

    def advance(self, done_bytes: int, total_bytes: int) -> None:
        self._watcher.advance(self._name, done_bytes, total_bytes, "bytes", self._note, self._files)
