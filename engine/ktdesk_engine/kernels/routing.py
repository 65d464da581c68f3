"""Which experts a token goes to, and with what weight: the rule, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import Floats, Ids, WorkerPool, _kernels
from ktdesk_engine.kernels.arrays import new_floats, new_ids

NO_EXPERT = -1
"""In place of an expert's id: it is computed elsewhere."""

Counts = npt.NDArray[np.int64]

SMALLEST_WEIGHT_SUM = 6.103515625e-5
"""The smallest normal float16: what a sum of weights is at least taken to be."""


class Gating(IntEnum):
    """How router logits become probabilities; the values of the key `expert_gating_func`."""

    SOFTMAX = 1
    SIGMOID = 2
    SOFTMAX_OF_CHOSEN = 3
    """Choose on the logits, then softmax over the chosen."""


@dataclass(frozen=True)
class RoutingRule:
    num_experts: int
    num_used: int
    gating: Gating = Gating.SOFTMAX
    normalize: bool = False
    """Divide the chosen weights by their sum."""
    scale: float = 1.0
    num_groups: int = 1
    num_groups_used: int = 1
    """Only experts of the best groups may be chosen; a group is as good as its two best experts together."""


class Routes(NamedTuple):
    ids: Ids
    """(T, K), the best expert first, the lower id first among equals."""
    weights: Floats
    """(T, K)"""


def choose_experts(
    pool: WorkerPool,
    logits: Floats,
    rule: RoutingRule,
    selection_bias: Floats | None = None,
    counts: Counts | None = None,
) -> Routes:
    """logits (T, E), selection_bias (E,): for choosing only, never part of a weight.

    counts (E,) grow by one for each token of an expert.
    """
    shape = (len(logits), rule.num_used)
    routes = Routes(new_ids(pool, *shape), new_floats(pool, *shape))
    _kernels.choose_experts(
        pool,
        logits,
        selection_bias,
        int(rule.gating),
        rule.normalize,
        rule.scale,
        rule.num_groups,
        rule.num_groups_used,
        *routes,
        counts,
    )
    return routes


def split_routes(
    pool: WorkerPool, routes: Routes, num_deferred: Ids, slot_of_expert: Ids | None = None
) -> tuple[Routes, Routes]:
    """What is computed at once, and what may wait: the same routes, NO_EXPERT in place of those of the other part.

    num_deferred (1,): of a token the so many experts of smallest weight, but at least two others stay.
    slot_of_expert (E,): those with a slot of 0 or more are in neither part. Both are read in each replay.
    """
    parts = [Routes(new_ids(pool, *routes.ids.shape), routes.weights) for _ in range(2)]
    _kernels.split_routes(pool, slot_of_expert, num_deferred, *routes, *(part.ids for part in parts))
    return parts[0], parts[1]


def map_experts(pool: WorkerPool, slot_of_expert: Ids, routes: Routes) -> Routes:
    """The slot (E,) of each expert in its place, NO_EXPERT for those that have none."""
    slots = Routes(new_ids(pool, *routes.ids.shape), routes.weights)
    _kernels.map_experts(pool, slot_of_expert, routes.ids, slots.ids)
    return slots
