"""What share of the peak the kernels reach, each kind apart: for predictions of whole models.

Experts and matrices of each type of weights, and attention. Each is measured between two looks at the peak, for the
machine drifts; the share is what stays. On tiles a kernel is held against both peaks, that of vectors, which unpack for
tiles, and that of tiles themselves: they drift apart, and its speed follows the geometric mean of both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.benchmark.random_weights import random_weight
from ktdesk_engine.benchmark.time_limit import TimeLimit
from ktdesk_engine.kernels import AttentionRule, ExpertMlp, ExpertWeight, Weight, WorkerPool
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.kv_cache import CachedSequence, KVCache, LayerCacheShape
from ktdesk_engine.quants.formats import WeightType

T = 512
"""Tokens computed together, as in a chunk of a prompt."""
H, I, E, K = 2048, 768, 8, 2
HEADS, KV_HEADS, D = 16, 4, 128
ROWS = 2048
REPEAT = 7
EXPERTS, MATRIX, ATTENTION = "experts", "matrix", "attention"
TYPES = (
    WeightType.Q4_K,
    WeightType.Q6_K,
    WeightType.Q8_0,
    WeightType.Q5_K,
    WeightType.Q3_K,
    WeightType.Q2_K,
    WeightType.Q4_0,
    WeightType.Q4_1,
    WeightType.Q5_0,
    WeightType.IQ4_XS,
    WeightType.MXFP4,
)
"""Of which files mostly are."""


@dataclass(frozen=True)
class KernelShare:
    kind: str
    """experts, matrix or attention."""
    type: str
    """Of the weights; of attention that of the cache."""
    share: float
    """Operations a second by the peak, both of the same moment."""
    on_tiles: bool = False


Job = Callable[[], object]


@dataclass(frozen=True)
class _Kind:
    """What is measured, on vectors and on tiles alike."""

    kind: str
    type: str
    make: Callable[[WorkerPool], tuple[Job, float]]
    """Its job, and how many operations that is."""


def _kinds() -> list[_Kind]:
    """Those first that most models need."""
    kinds = [_Kind(ATTENTION, "f16", _attention)]
    for weight_type in TYPES:
        kinds.append(_Kind(EXPERTS, weight_type.name, partial(_experts, weight_type=weight_type)))
        kinds.append(_Kind(MATRIX, weight_type.name, partial(_matrix, weight_type=weight_type)))
    return kinds


def num_shares(pool: WorkerPool) -> int:
    """That `kernel_shares` measures where there is time for all."""
    return len(_kinds()) * (1 + pool.has_tiles)


def kernel_shares(
    pool: WorkerPool, probes: Probes, vectors: str, tiles: str, limit: TimeLimit | None = None
) -> Iterator[KernelShare]:
    """On vectors, and on tiles as mixed uses them, where there are any. vectors, tiles: names of the probes' peaks.

    Where the time is over before, the last types are left out.
    """
    kinds, limit = _kinds(), limit or TimeLimit()
    for index, kind in enumerate(kinds):
        yield from _shares_of(kind, pool, probes, (vectors, tiles), limit, len(kinds) - index)


def _shares_of(
    kind: _Kind, pool: WorkerPool, probes: Probes, peaks: tuple[str, str], limit: TimeLimit, num_left: int
) -> Iterator[KernelShare]:
    """num_left: kinds that are still to come, with this one."""
    num_ways = 1 + pool.has_tiles
    turns = limit.turns(REPEAT, num_left * num_ways)  # the time that it is made in counts
    made = None if limit.is_over else kind.make(pool)
    for on_tiles in (False, True)[:num_ways]:
        if on_tiles:
            turns = limit.turns(REPEAT, num_left * num_ways - 1)
        if made is None or limit.is_over:
            continue
        pool.min_tile_rows = 1 if on_tiles else NEVER
        pool.min_tile_queries = 1 if on_tiles else NEVER
        yield KernelShare(kind.kind, kind.type, _share(*made, probes, peaks[: 1 + on_tiles], turns), on_tiles)


def _share(job: Job, num_operations: float, probes: Probes, peaks: tuple[str, ...], turns: Iterable[int]) -> float:
    """Of the medians of some, taken in turns; a first one warms up."""
    job()
    speeds, rates = [], []
    for _ in turns:
        started = time.perf_counter()
        job()
        speeds.append(num_operations / (time.perf_counter() - started))
        rates.append(geometric_mean(probes.measure_peak(peak) for peak in peaks))
    return median(speeds) / median(rates)


def _packed(pool: WorkerPool, weight_type: WeightType, *shape: int) -> Weight:
    return kernels.pack(pool, random_weight(weight_type, *shape))


def _experts(pool: WorkerPool, weight_type: WeightType) -> tuple[Job, float]:
    inner = ExpertWeight(_packed(pool, weight_type, E, I, H))
    mlp = ExpertMlp(inner, inner, ExpertWeight(_packed(pool, weight_type, E, H, I)))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((T, H), np.float32)
    ids = np.ascontiguousarray(np.argpartition(rng.random((T, E)), K - 1, axis=1)[:, :K], np.int32)
    weights = np.full((T, K), 1 / K, np.float32)
    return lambda: kernels.expert_mlp(pool, mlp, x, ids, weights), 2.0 * T * K * 3 * H * I


def _matrix(pool: WorkerPool, weight_type: WeightType) -> tuple[Job, float]:
    weight = _packed(pool, weight_type, ROWS, H)
    x = np.random.default_rng(0).standard_normal((T, H), np.float32)
    return lambda: kernels.linear(pool, weight, x), 2.0 * T * ROWS * H


def _attention(pool: WorkerPool) -> tuple[Job, float]:
    """A prompt over itself: each token sees half of the others on average."""
    cache = KVCache([LayerCacheShape(KV_HEADS, D, D)], T, "f16")
    context = cache.extend(CachedSequence(), T)
    rng = np.random.default_rng(0)
    for rows in (cache.keys(0), cache.values(0)):
        kernels.store_rows(pool, rows, context, rng.standard_normal((T, KV_HEADS, D), np.float32))
    queries = rng.standard_normal((T, HEADS, D), np.float32)
    rule = AttentionRule(D**-0.5)
    job = lambda: kernels.attention(pool, queries, cache.keys(0), cache.values(0), context, rule)  # noqa: E731
    return job, 2.0 * T * (T + 1) / 2 * HEADS * 2 * D
