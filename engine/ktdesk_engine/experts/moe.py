"""The mixture-of-experts layer: a router, the experts that it chooses, and those that are always on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ktdesk_engine.kernels import Activation, ExpertMlp, ExpertWeight, Floats, Weight
from ktdesk_engine.kernels.routing import Routes, RoutingRule
from ktdesk_engine.layers.router import Router
from ktdesk_engine.weights import Weights


class SharedExperts(Protocol):
    """The always-on experts as one network."""

    def __call__(self, x: Floats) -> Floats:
        """(T, H) -> (T, H)."""


class RoutedExperts(Protocol):
    """Who computes the experts that the router chose."""

    def __call__(self, x: Floats, routes: Routes, is_decode: bool) -> Callable[[], Floats]:
        """Begins with x (T, H). What it gives waits for the weighted sum, (T, H).

        is_decode: each token is the last of its sequence.
        """


class ExpertLayer(Protocol):
    """What those need of a layer who compute its experts in place of it."""

    experts: ExpertMlp
    hidden: int
    rule: RoutingRule
    routed: RoutedExperts


class MoeLayer:
    """`ffn_gate_inp` and the stacked `ffn_gate_exps`, `ffn_up_exps`, `ffn_down_exps` of one layer.

    Gate and up may be one tensor, `ffn_gate_up_exps`, with the gate's rows first in each expert.
    """

    def __init__(
        self,
        weights: Weights,
        hidden: int,
        width: int,
        rule: RoutingRule,
        activation: Activation = Activation.SWIGLU,
        shared: SharedExperts | None = None,
    ) -> None:
        self._backend = weights.backend
        self.hidden, self.rule = hidden, rule
        self.router = Router(weights, hidden, rule)
        gate, up = _gate_and_up(weights, rule.num_experts, width, hidden)
        down = weights.experts("ffn_down_exps", rule.num_experts, hidden, width)
        self.experts = ExpertMlp(gate, up, down, activation)
        self.routed: RoutedExperts = self._computed_here
        self._shared = shared
        weights.packables.append(self)

    def packable_weights(self) -> list[Weight]:
        return self.experts.weights

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        self.experts = self.experts.with_weights(packed)

    def __call__(self, x: Floats, is_decode: bool = False) -> Floats:
        """(T, H) -> (T, H)."""
        routed = self.routed(x, self.router(x), is_decode)
        if self._shared is None:
            return routed()
        shared = self._shared(x)
        return self._backend.add(routed(), shared)

    def _computed_here(self, x: Floats, routes: Routes, is_decode: bool) -> Callable[[], Floats]:
        out = self._backend.experts(self.experts, x, *routes)
        return lambda: out


def _gate_and_up(weights: Weights, E: int, width: int, hidden: int) -> tuple[ExpertWeight, ExpertWeight]:
    if not weights.has("ffn_gate_up_exps.weight"):
        gate = weights.experts("ffn_gate_exps", E, width, hidden)
        return gate, weights.experts("ffn_up_exps", E, width, hidden)
    merged = weights.experts("ffn_gate_up_exps", E, 2 * width, hidden)
    return _rows(merged, slice(0, width)), _rows(merged, slice(width, None))


def _rows(merged: ExpertWeight, rows: slice) -> ExpertWeight:
    """Some rows of each expert, where they lie."""
    weight = Weight(merged.weight.type, merged.weight.blocks[:, rows])
    bias = None if merged.bias is None else np.ascontiguousarray(merged.bias[:, rows])
    return ExpertWeight(weight, bias)
