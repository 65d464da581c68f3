"""How fast steps of decoding read weights, of those steps where it is known how much they read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

WeightBytes = Callable[[int], float | None]
"""What a step for so many requests reads of the weights; None where that depends on what they ask."""
NUM_STEPS = 64


class ReadRate:
    """Of the last such steps."""

    def __init__(self, weight_bytes: WeightBytes) -> None:
        self._weight_bytes = weight_bytes
        self._steps: deque[tuple[float, float]] = deque(maxlen=NUM_STEPS)
        """(bytes, seconds)"""
        self.bytes_s: float | None = None
        """None: no such step yet. Any thread may read it."""

    def decoded(self, num_rows: int, seconds: float) -> None:
        num_bytes = self._weight_bytes(num_rows)
        if num_bytes is not None and seconds > 0:
            self._steps.append((num_bytes, seconds))
            self.bytes_s = sum(step[0] for step in self._steps) / sum(step[1] for step in self._steps)
