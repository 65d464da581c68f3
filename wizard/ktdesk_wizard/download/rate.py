"""How fast bytes come, over the last seconds: nothing for a while is a rate of nothing, and no time is promised."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 10.0
LONG_WINDOW_SECONDS = 60.0
"""For the remaining time, which should not jump about."""


class RateMeter:
    def __init__(self, now: float) -> None:
        self._start = now
        self._last = now
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, num_bytes: int, now: float) -> None:
        self._samples.append((now, num_bytes))
        self._last = now
        while self._samples and self._samples[0][0] < now - LONG_WINDOW_SECONDS:
            self._samples.popleft()

    def bytes_s(self, now: float, window: float = WINDOW_SECONDS) -> float:
        """Over the window, or since the beginning if that is later."""
        since = max(now - window, self._start)
        num_bytes = sum(size for time, size in self._samples if time > since)
        return num_bytes / max(now - since, 1e-3)

    def quiet_seconds(self, now: float) -> float:
        """Since the last byte came."""
        return now - self._last

    def seconds_left(self, num_bytes: int, now: float) -> float | None:
        """None where nothing comes, and nobody can say."""
        if num_bytes <= 0:
            return 0.0
        if not self.bytes_s(now):
            return None
        return num_bytes / self.bytes_s(now, LONG_WINDOW_SECONDS)
