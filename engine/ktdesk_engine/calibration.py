"""From how many rows of an expert on tiles are faster than vectors: measured on this machine, with this model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.kernels import ExpertMlp, WorkerPool
from ktdesk_engine.kernels.pools import NEVER

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
ENOUGH_WINS = 2
"""So many counts one after the other at which tiles are faster end the search."""
NUM_EXPERTS = 4
REPEAT = 3
MAX_SECONDS = 0.5


@runtime_checkable
class HasExperts(Protocol):
    """A layer with a feed-forward network."""

    @property
    def experts(self) -> ExpertMlp:
        """As it is computed with."""


def typical_experts(layers: Sequence[object]) -> ExpertMlp | None:
    """Of the layers, the middle one of those with the most experts; None where there are no such networks."""
    networks = [layer.experts for layer in layers if isinstance(layer, HasExperts)]
    most = max((mlp.num_experts for mlp in networks), default=0)
    largest = [mlp for mlp in networks if mlp.num_experts == most]
    return largest[len(largest) // 2] if largest else None


def find_min_tile_rows(pool: WorkerPool, mlp: ExpertMlp) -> int:
    """The first count of rows at which tiles win, and win at the next count too; the last where time runs out.

    NEVER where they do not win at the last.
    """
    if not pool.has_tiles or not _are_tiles_faster(pool, mlp, ROW_COUNTS[-1]):
        return NEVER
    deadline = time.perf_counter() + MAX_SECONDS
    first, wins = ROW_COUNTS[-1], 0
    for num_rows in ROW_COUNTS[:-1]:
        if time.perf_counter() > deadline:
            break
        if not _are_tiles_faster(pool, mlp, num_rows):
            first, wins = ROW_COUNTS[-1], 0
            continue
        first, wins = min(first, num_rows), wins + 1
        if wins == ENOUGH_WINS:
            break
    return first


def _are_tiles_faster(pool: WorkerPool, mlp: ExpertMlp, num_rows: int) -> bool:
    """The least of a few times counts: what disturbs a measurement only makes it longer."""
    num_used = min(NUM_EXPERTS, mlp.num_experts)
    T, H = num_rows * num_used, mlp.down.weight.num_rows
    x = np.random.default_rng(num_rows).standard_normal((T, H), np.float32)
    weights = np.ones((T, 1), np.float32)
    seconds: dict[int, list[float]] = {1: [], NEVER: []}
    for repetition in range(REPEAT):
        for min_tile_rows, times in seconds.items():
            start = repetition * num_used
            ids = ((start + np.arange(T) // num_rows) % mlp.num_experts).astype(np.int32)[:, None]
            with _tiles_from(pool, min_tile_rows):
                started = time.perf_counter()
                kernels.expert_mlp(pool, mlp, x, ids, weights)
                times.append(time.perf_counter() - started)
    return min(seconds[1]) < min(seconds[NEVER])


@contextmanager
def _tiles_from(pool: WorkerPool, min_tile_rows: int) -> Iterator[None]:
    before = pool.min_tile_rows
    pool.min_tile_rows = min_tile_rows
    try:
        yield
    finally:
        pool.min_tile_rows = before
