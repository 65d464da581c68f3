"""When an answer must be whole."""

from __future__ import annotations

import time

from ktdesk_engine.errors import DeadlineError


class Deadline:
    """The narrowest of what was allowed, counted from now; None: as long as it takes."""

    def __init__(self, *allowed_seconds: float | None) -> None:
        self._started = time.monotonic()
        self._seconds = min((seconds for seconds in allowed_seconds if seconds is not None), default=None)

    def seconds_left(self) -> float | None:
        """None: no end. DeadlineError where nothing is left."""
        if self._seconds is None:
            return None
        left = self._started + self._seconds - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> DeadlineError:
        """That it passed, in words of who set it."""
        return DeadlineError(f"the answer was not done after {self._seconds:g} s: ask for less, or allow more")
