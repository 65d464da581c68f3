"""The dense feed-forward network, which is also what a shared expert is."""

from __future__ import annotations

from collections.abc import Callable

from ktdesk_engine.kernels import Activation, ExpertMlp, ExpertWeight, Floats, Weight
from ktdesk_engine.weights import Weights


class Mlp:
    """down(silu(gate x) * up x) of `ffn_gate`, `ffn_up` and `ffn_down`, each with `suffix`."""

    def __init__(self, weights: Weights, hidden: int, width: int, suffix: str = "") -> None:
        self._backend = weights.backend

        def only_expert(name: str, num_rows: int, row_length: int) -> ExpertWeight:
            weight = weights.matrix(f"{name}{suffix}.weight", num_rows, row_length)
            bias = weights.bias(f"{name}{suffix}.bias", num_rows)
            return ExpertWeight(Weight(weight.type, weight.blocks[None]), None if bias is None else bias[None])

        self.experts = ExpertMlp(
            gate=only_expert("ffn_gate", width, hidden),
            up=only_expert("ffn_up", width, hidden),
            down=only_expert("ffn_down", hidden, width),
            activation=Activation.SWIGLU,
        )
        weights.packables.append(self)

    def packable_weights(self) -> list[Weight]:
        return self.experts.weights

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        self.experts = self.experts.with_weights(packed)

    def __call__(self, x: Floats, is_decode: bool = False) -> Floats:
        """(T, H) -> (T, H), whatever is_decode, which a layer with experts has in its place."""
        return self._backend.mlp(self.experts, x)
