"""Which routed experts lie on the accelerator: strategies within a budget, and what rules leave to them.

Plain data in, plain data out: a mask (L, E) over the layers with experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.placement_rules import ExpertRules, Strategy

STAGE_SHARE = 4
"""Two layers' experts, for long prompts, may take so small a part of what the cache leaves: the rest is for resident
ones."""
Mask = npt.NDArray[np.bool_]
Rates = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Budget:
    """Room for experts on the accelerator."""

    num_bytes: int
    expert_bytes: int
    """Of the slot that the largest expert needs."""

    @property
    def num_slots(self) -> int:
        return self.num_bytes // self.expert_bytes


def work_bytes(num_tokens: int, hidden: int, width: int, num_used: int) -> int:
    """Of arrays that one layer of a batch needs side by side, in float32, and half as much again for their byte forms:
    some of its hidden size, and of each of a token's experts."""
    return 6 * num_tokens * (8 * hidden + num_used * (2 * width + hidden))


def has_room_to_pass(two_layers_bytes: int, free_bytes: int) -> bool:
    """Whether long prompts may pass a layer's experts through the accelerator. free_bytes: beside the cache."""
    return two_layers_bytes <= free_bytes // STAGE_SHARE


def choose_residents(
    strategy: Strategy,
    rates: Rates,
    num_slots: int,
    rules: ExpertRules | None = None,
    seed: int = 0,
) -> Mask:
    """(L, E): num_slots experts, or all there are. rates (L, E): how often each is used.

    ConfigError where rules force more than there is room for.
    """
    forced, allowed = _masks(rates.shape, rules)
    num_left = num_slots - int(forced.sum())
    if num_left < 0:
        raise ConfigError(
            f"rules put {int(forced.sum())} experts on the accelerator, but there is room for {num_slots}: give it "
            "more memory, or let fewer layers match"
        )
    score = np.where(allowed & ~forced, _scores(strategy, rates, seed), -np.inf).reshape(-1)
    best = np.argsort(-score, kind="stable")[:num_left]
    mask = forced.reshape(-1).copy()
    mask[best[np.isfinite(score[best])]] = True
    return mask.reshape(rates.shape)


def forced_experts(shape: tuple[int, ...], rules: ExpertRules | None) -> Mask:
    """(L, E): those that rules put on the accelerator."""
    return _masks(shape, rules)[0]


def _masks(shape: tuple[int, ...], rules: ExpertRules | None) -> tuple[Mask, Mask]:
    """Of experts that must, and of those that may lie on the accelerator."""
    forced, allowed = np.zeros(shape, bool), np.ones(shape, bool)
    if rules is not None:
        forced[list(rules.forced)] = True
        allowed[list(rules.forbidden)] = False
    return forced, allowed


def _scores(strategy: Strategy, rates: Rates, seed: int) -> Rates:
    """The larger, the sooner on the accelerator; among equals the earlier layer, then the lower id."""
    L, E = rates.shape
    if strategy == "frequency":
        return rates
    if strategy == "front-loading":
        return np.repeat(-np.arange(L, dtype=np.float64)[:, None], E, axis=1)
    if strategy == "random":
        return np.random.default_rng(seed).random((L, E))
    # uniform: as many in each layer, the most used of it first
    order = np.argsort(-rates, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(E)[None, :].repeat(L, axis=0), axis=1)
    return -ranks.astype(np.float64)


def moves_toward(current: Mask, wanted: Mask, rates: Rates, max_moves: int) -> list[tuple[int | None, int]]:
    """Flat ids (who leaves, who comes), those that gain the most first, at most max_moves. None leaves for those that
    are more than before."""
    leaving = np.flatnonzero(current & ~wanted)
    coming = np.flatnonzero(wanted & ~current)
    flat = rates.reshape(-1)
    leaving = leaving[np.argsort(flat[leaving], kind="stable")]
    coming = coming[np.argsort(-flat[coming], kind="stable")]
    outs = [*[None] * (len(coming) - len(leaving)), *leaving.tolist()]
    return list(zip(outs[:max_moves], coming[:max_moves].tolist(), strict=False))
