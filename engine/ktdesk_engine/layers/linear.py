"""A matrix product, with or without a bias."""

from __future__ import annotations

from collections.abc import Callable

from ktdesk_engine.kernels import Floats, Weight
from ktdesk_engine.weights import Weights

ALL_ROWS = slice(None)


class Linear:
    """`name.weight`, and `name.bias` if the file has it; or only some of the tensor's num_rows rows."""

    def __init__(self, weights: Weights, name: str, num_rows: int, row_length: int, rows: slice = ALL_ROWS) -> None:
        self._backend = weights.backend
        weight = weights.matrix(f"{name}.weight", num_rows, row_length)
        bias = weights.bias(f"{name}.bias", num_rows)
        self._weight = Weight(weight.type, weight.blocks[rows])
        self._bias = None if bias is None else bias[rows]
        weights.packables.append(self)

    def packable_weights(self) -> list[Weight]:
        return [self._weight]

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        self._weight = packed(self._weight)

    def __call__(self, x: Floats) -> Floats:
        """(T, row_length) -> (T, rows)."""
        return self._backend.linear(self._weight, x, self._bias)
