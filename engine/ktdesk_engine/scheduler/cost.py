"""How long a step takes, learned from steps that were measured."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NUM_STEPS = 64
"""What is remembered: the machine, and its other work, change."""


class MeasuredStep(NamedTuple):
    num_tokens: int
    num_pairs: int
    """Tokens times the positions that they look at."""
    seconds: float


@dataclass(frozen=True)
class Cost:
    """Seconds of a step: reading the weights, computing its tokens, attention to what is before them."""

    fixed: float = 0.0
    per_token: float = 0.0
    per_pair: float = 0.0

    @property
    def is_known(self) -> bool:
        return self != Cost()

    def seconds(self, num_tokens: int, position: int = 0) -> float:
        """position: of the first token."""
        if num_tokens == 0:
            return 0.0
        return self.fixed + self.per_token * num_tokens + self.per_pair * num_pairs(num_tokens, position)

    def largest_step(self, seconds: float, position: int, most: int) -> int:
        """Most tokens, up to `most`, that are done in so many seconds; 0 where not even one is."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.seconds(middle, position) <= seconds else (low, middle - 1)
        return low


class CostMeter:
    """Fits a cost to the last steps."""

    def __init__(self) -> None:
        self._steps: deque[MeasuredStep] = deque(maxlen=NUM_STEPS)
        self.cost = Cost()

    def observe(self, num_tokens: int, position: int, seconds: float) -> None:
        self._steps.append(MeasuredStep(num_tokens, num_pairs(num_tokens, position), seconds))
        self.cost = self._fitted()

    def _fitted(self) -> Cost:
        """Only the terms that the steps can tell apart, and none that is negative."""
        tokens, pairs, seconds = np.array(self._steps, float).T
        terms = {"per_token": tokens}
        if tokens.max() >= 2 * tokens.min():
            terms["fixed"] = np.ones_like(tokens)
        depths = pairs / tokens
        if depths.max() >= 2 * depths.min() + tokens.max():
            terms["per_pair"] = pairs
        while True:
            columns = np.array(list(terms.values())).T / seconds[:, None]
            values = np.linalg.lstsq(columns, np.ones_like(seconds), rcond=None)[0]
            fitted = dict(zip(terms, values.tolist(), strict=True))
            worst = min(fitted, key=lambda name: fitted[name])
            if fitted[worst] >= 0 or len(terms) == 1:
                return Cost(**fitted)
            del terms[worst]


def num_pairs(num_tokens: int, position: int) -> int:
    return num_tokens * position + num_tokens * (num_tokens + 1) // 2
