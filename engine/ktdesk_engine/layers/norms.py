"""Norms."""

from __future__ import annotations

from ktdesk_engine.kernels import Floats
from ktdesk_engine.weights import Weights


class RmsNorm:
    """Root mean square norm over each `length` elements: over the last axis, or over each head in it."""

    def __init__(self, weights: Weights, name: str, length: int, epsilon: float) -> None:
        self.backend = weights.backend
        self._epsilon = epsilon
        self._weight = weights.vector(f"{name}.weight", length)

    def __call__(self, x: Floats) -> Floats:
        """(..., a multiple of length) -> the same."""
        rows = x.reshape(-1, len(self._weight))
        return self.backend.rms_norm(rows, self._weight, self._epsilon).reshape(x.shape)

    def in_place(self, x: Floats) -> None:
        """x (T, length), which may be some columns of a wider array."""
        self.backend.rms_norm_in_place(x, self._weight, self._epsilon)
