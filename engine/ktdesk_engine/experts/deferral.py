"""Deferral: a token's experts of smallest weight come with the next layer's output, so that the CPU computes them
while the accelerator is at its next attention.

    O_k = I_k + S_k(I_k) + R_k^immediate(I_k) + R_{k-1}^deferred(I_{k-1})

S shared experts, R routed ones. It changes what the model computes. Only while decoding, per token, of those experts
that the CPU computes; the first layer receives none, the last defers none, and at least two of a token stay
immediate. docs/deferral.md has what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from ktdesk_engine.backends.backend import Backend
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.experts.moe import ExpertLayer
from ktdesk_engine.kernels import Floats, Ids
from ktdesk_engine.kernels.routing import Routes, split_routes

MIN_IMMEDIATE = 2
"""As csrc/cpu_share.h has it."""

GOOD_ENOUGH = 1.02
"""A step this close to the fastest hides the CPU as well: fewer deferred experts are the better answer."""

Defer = int | Literal["auto"]


def max_deferred(num_used: int) -> int:
    """Of a token that uses so many experts."""
    return max(num_used - MIN_IMMEDIATE, 0)


def check_deferred(wish: int, num_used: int) -> None:
    """ConfigError where the model does not have so many to defer. num_used: of a token; 0: it has no experts."""
    if wish and not num_used:
        raise ConfigError(f"defer {wish}: this model has no experts to defer")
    if wish > max_deferred(num_used):
        raise ConfigError(
            f"defer {wish}: this model uses {num_used} experts for a token and {MIN_IMMEDIATE} stay immediate, so at "
            f"most {max_deferred(num_used)} can be deferred"
        )


def fewest_that_hide(step_seconds: Sequence[float]) -> int:
    """step_seconds[d]: of a decode step that defers d experts. The fewest that are as fast as any."""
    fastest = min(step_seconds)
    return next(d for d, seconds in enumerate(step_seconds) if seconds <= GOOD_ENOUGH * fastest)


class CpuDeferral:
    """Deferral where the CPU computes everything: nothing is gained by it, but its effect can be measured."""

    def __init__(self, backend: Backend, layers: Sequence[ExpertLayer], num_deferred: Ids) -> None:
        """num_deferred (1,): read in each step."""
        self._backend = backend
        self._layers = layers
        self._num_deferred = num_deferred
        self._pending: Floats | None = None
        """Of the layer before."""
        for index, layer in enumerate(layers):
            layer.routed = partial(self._experts, index)

    def _experts(self, index: int, x: Floats, routes: Routes, is_decode: bool) -> Callable[[], Floats]:
        experts = self._layers[index].experts
        pending = None if index == 0 else self._pending
        self._pending = None
        if is_decode and index < len(self._layers) - 1:
            routes, later = split_routes(self._backend.pool, routes, self._num_deferred)
            self._pending = self._backend.experts(experts, x, *later)
        out = self._backend.experts(experts, x, *routes)
        total = out if pending is None else self._backend.add(out, pending)
        return lambda: total


def deferral_cell(num_deferred: int) -> Ids:
    """(1,): where a step reads how many are deferred, so that it can change between steps."""
    return np.array([num_deferred], np.int32)
