"""What goes to the terminal besides answers: notes and progress, all of it on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import IO

SECONDS_BETWEEN_UPDATES = 0.1
CUT = "..."
_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_CONTROL |= dict.fromkeys(range(0x80, 0xA0), "\ufffd")


def without_control(text: str) -> str:
    """With control characters drawn instead of obeyed: text of a model must not steer a terminal."""
    return text.translate(_CONTROL)


def on_one_line(text: str) -> str:
    return without_control(text.replace("\n", "\\n").replace("\t", " "))


def tell(text: str, end: str = "\n") -> None:
    """Writes to standard error. Where that cannot be written to, the answer counts all the same."""
    with contextlib.suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """A line that is no part of the answer."""
    tell(f"\033[2m{text}\033[0m" if has_colours(sys.stderr) else text)


def has_colours(stream: IO[str]) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


class Progress:
    """A `ktdesk_wizard.report.Report` on standard error: rewrites its line on a terminal, one line a step
    elsewhere."""

    def __init__(self) -> None:
        self.rewrites = sys.stderr.isatty()
        """Whether the line is rewritten as the work goes on."""
        self._what = ""
        self._next_update = 0.0

    def step(self, what: str) -> None:
        self.finish()
        self._what, self._next_update = on_one_line(what), 0.0
        if self.rewrites:
            self._write(_fitted(self._what, "", _columns()))
        else:
            tell(self._what)

    def advance(self, done_bytes: int, total_bytes: int, rest: str = "") -> None:
        """rest: what else there is to say."""
        now = time.monotonic()
        if not self.rewrites or (now < self._next_update and done_bytes < total_bytes):
            return
        self._next_update = now + SECONDS_BETWEEN_UPDATES
        share = done_bytes / total_bytes if total_bytes else 1.0
        self.tell(f"{share:4.0%} of {total_bytes / 2**20:,.0f} MiB" + (f", {rest}" if rest else ""))

    def tell(self, state: str) -> None:
        """Rewrites what stands behind the step."""
        if self.rewrites:
            self._write(_fitted(self._what, f"  {state}", _columns()))

    def finish(self) -> None:
        """Leaves the line as it is."""
        if self.rewrites and self._what:
            tell("")
        self._what = ""

    def erase(self) -> None:
        """Takes the line away: what it said is done and of no more interest."""
        if self.rewrites and self._what:
            self._write("")
        self._what = ""

    def _write(self, text: str) -> None:
        tell(f"\r\033[K{text}", end="")


def _fitted(what: str, state: str, columns: int | None) -> str:
    """On one line, for only that can be rewritten: what is done is cut before how far it is."""
    if columns is None or len(what) + len(state) < columns:
        return what + state
    what = what.rstrip()
    if len(what) + len(state) < columns:
        return what + state
    room = columns - 1 - len(state) - len(CUT)
    return f"{what[:room]}{CUT}{state}" if room > 0 else state.strip()[: columns - 1]


def _columns() -> int | None:
    """Of the terminal that standard error is. None: it does not tell."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError):
        return None
