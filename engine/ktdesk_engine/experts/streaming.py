"""Long prompts: all routed experts of one layer after the other pass through the accelerator, copied while it computes
the layer before. Worth it from so many tokens on as a measurement of both ways on real prompts finds.
"""

from __future__ import annotations

import statistics
from collections import deque

from ktdesk_engine.backends.accelerator import ExpertStage
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kernels.routing import Routes

MIN_TOKENS = 64
"""Fewer are never worth a copy of all experts, nor a measurement."""
KEPT = 5
"""Measurements of each way; their median counts."""


class BreakEven:
    """From how many tokens of a batch on it is faster to copy all experts than to let the CPU compute."""

    def __init__(self) -> None:
        self._cpu_tok_s: deque[float] = deque(maxlen=KEPT)
        self._streamed_seconds: deque[float] = deque(maxlen=KEPT)

    @property
    def num_tokens(self) -> float | None:
        """CPU speed times the time that one pass takes, however many tokens; None before both were measured."""
        if not self._cpu_tok_s or not self._streamed_seconds:
            return None
        return statistics.median(self._cpu_tok_s) * statistics.median(self._streamed_seconds)

    def streams(self, num_tokens: int) -> bool:
        """What to do with a batch: before both are known, the way that is not."""
        if num_tokens < MIN_TOKENS or not self._cpu_tok_s:
            return False
        found = self.num_tokens
        return found is None or num_tokens >= found

    def took(self, is_streamed: bool, num_tokens: int, seconds: float) -> None:
        """A batch, from the first to the last layer."""
        if is_streamed:
            self._streamed_seconds.append(seconds)
        elif num_tokens >= MIN_TOKENS:
            self._cpu_tok_s.append(num_tokens / max(seconds, 1e-9))


class StreamedExperts:
    """The areas that layers take in turn."""

    def __init__(self, stage: ExpertStage, num_layers: int) -> None:
        self._stage = stage
        self._num_layers = num_layers
        self._loading: set[int] = set()
        """Layers whose copy began and that were not computed with."""

    def experts(self, layer: int, x: Floats, routes: Routes) -> Floats:
        """All experts of the layer for x (T, H) -> (T, H). Call it for each layer, from the first to the last."""
        for ahead in (layer, layer + 1):
            self._load(ahead)
        out = self._stage.experts(layer, x, routes)
        self._loading.discard(layer)
        return out

    def close(self) -> None:
        """Gives the areas back. What was submitted is done."""
        self._stage.close()

    def _load(self, layer: int) -> None:
        if layer < self._num_layers and layer not in self._loading:
            self._loading.add(layer)
            self._stage.load(layer)
