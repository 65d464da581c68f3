"""Long prompts: all routed experts of one layer after the other pass through the accelerator, copied while it computes
the layer before. Worth it from so many tokens on as a measurement of both ways on real prompts finds.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable

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

    def __init__(self, make_stage: Callable[[], ExpertStage], num_layers: int) -> None:
        """AcceleratorMemoryError where the areas do not fit."""
        self.break_even = BreakEven()
        self._make_stage = make_stage
        self._stage = make_stage()
        self._num_layers = num_layers
        self._is_loading = False
        """Whether a layer's copy began that was not computed with."""

    def experts(self, layer: int, x: Floats, routes: Routes) -> Floats:
        """All experts of the layer for x (T, H) -> (T, H). Call it for each layer, from the first to the last."""
        if layer == 0:
            self._is_loading = True
            self._stage.load(0)
        is_last = layer == self._num_layers - 1
        if not is_last:
            self._stage.load(layer + 1)
        out = self._stage.experts(layer, x, routes)
        self._is_loading = not is_last
        return out

    def fail(self) -> None:
        """Nobody waits for a copy any more, nor a copy for anybody."""
        if self._is_loading:
            self._stage.fail()

    def reset(self) -> None:
        """Ready for a first layer. What was submitted is done. AcceleratorMemoryError as in the beginning."""
        if self._is_loading:
            self._stage.close()
            self._stage = self._make_stage()
            self._is_loading = False

    def close(self) -> None:
        """Gives the areas back. What was submitted is done."""
        self._stage.close()
