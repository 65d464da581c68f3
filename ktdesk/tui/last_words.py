"""A report that keeps only the last that was told, for who looks now and then."""

from __future__ import annotations

from ktdesk.amounts import bytes_text


class LastWords:
    """A `ktdesk_wizard.report.Report`, told from a thread."""

    def __init__(self) -> None:
        self.words = ""
        self._step = ""

    def step(self, what: str) -> None:
        self.words = self._step = what

    def advance(self, done_bytes: int, total_bytes: int) -> None:
        of = f" {100 * done_bytes / total_bytes:.0f} % of {bytes_text(total_bytes)}" if total_bytes else ""
        self.words = f"{self._step}{of}"
