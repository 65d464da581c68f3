"""One mixture-of-experts layer of random weights: the expert kernels alone, without router and attention."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import CACHES_PER_BUFFER, Probes
from ktdesk_engine.benchmark.random_weights import fitting_type, random_weight
from ktdesk_engine.benchmark.samples import Progress, Row, Work, take_samples
from ktdesk_engine.calibration import find_min_tile_rows
from ktdesk_engine.compute import decide_compute, fixed_min_tile_rows, rounds_to_bfloat16
from ktdesk_engine.config import Compute
from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Floats, Ids, Weight, WorkerPool
from ktdesk_engine.quants.formats import WeightType, row_bytes

SAMPLE_SECONDS = 0.2
MAX_CALLS = 256


class LayerShape(NamedTuple):
    """Hidden size, expert width, experts, and how many of them a token uses."""

    H: int
    I: int
    E: int
    K: int


SHAPES = {
    "qwen3-30b-a3b": LayerShape(2048, 768, 128, 8),
    "deepseek-v2-lite": LayerShape(2048, 1408, 64, 6),
}


@dataclass(frozen=True)
class LayerPlan:
    """What is measured."""

    shape: LayerShape
    type: WeightType
    tokens: tuple[int, ...] = (1, 512)
    repeat: int = 7
    compute: Compute = "auto"
    min_tile_rows: int | None = None
    """As EngineConfig has it."""

    def __post_init__(self) -> None:
        if min(self.shape) < 1 or self.shape.K > self.shape.E:
            raise ConfigError(f"a layer has sizes of at least 1 and uses at most all of its experts: {self.shape}")
        if min(self.tokens, default=0) < 1 or self.repeat < 1:
            raise ConfigError("tokens and repeat are at least 1")
        # Refused before any work.
        fitting_type(self.type, self.shape.H)
        fitting_type(self.type, self.shape.I)

    @property
    def types(self) -> tuple[WeightType, WeightType]:
        """Of gate and up, and of down."""
        return fitting_type(self.type, self.shape.H), fitting_type(self.type, self.shape.I)

    @property
    def file_bytes(self) -> int:
        """Of the whole layer."""
        H, I, E, _ = self.shape
        inner, outer = self.types
        return E * (2 * I * row_bytes(inner, H) + H * row_bytes(outer, I))


class LayerBench:
    """As many copies of the layer as the caches cannot hold, taken in turn. Experts are drawn at random."""

    def __init__(self, pool: WorkerPool, plan: LayerPlan, cache_bytes: int, available_bytes: int) -> None:
        self._pool, self._plan = pool, plan
        num_copies = max(1, math.ceil(CACHES_PER_BUFFER * cache_bytes / plan.file_bytes))
        affordable = available_bytes // 2 // plan.file_bytes - 1  # one more is there while the layer is made
        if affordable < 1:
            raise ResourceError(
                f"the layer needs {2 * plan.file_bytes / 2**30:.1f} GiB, but {available_bytes / 2**30:.1f} GiB of "
                "memory are available: take a smaller shape, or close something"
            )
        raw = _random_layer(plan)
        is_exact = plan.compute == "float32"
        self._layers = [
            raw.with_weights(self._copied if is_exact else self._packed) for _ in range(min(num_copies, affordable))
        ]
        self._calls = 0
        compute = decide_compute(plan.compute, pool)
        pool.rounds_to_bfloat16 = rounds_to_bfloat16(compute)
        fixed = fixed_min_tile_rows(compute, plan.min_tile_rows, pool)
        pool.min_tile_rows = find_min_tile_rows(pool, self._layers[0]) if fixed is None else fixed

    @property
    def layer_bytes(self) -> int:
        """In memory."""
        return sum(weight.blocks.nbytes for weight in self._layers[0].weights)

    def peak(self, num_tokens: int) -> str:
        """Of what most experts are computed on when so many tokens are."""
        _, _, E, K = self._plan.shape
        if num_tokens * K / E >= self._pool.min_tile_rows:
            return "bf16 tiles" if self._pool.rounds_to_bfloat16 else "int8 tiles"
        return "int8" if self._layers[0].gate.weight.packed else "float32"

    @property
    def peaks(self) -> list[str]:
        return sorted({self.peak(num_tokens) for num_tokens in self._plan.tokens})

    def rows(self, probes: Probes, progress: Progress) -> Iterator[Row]:
        """One for each count of tokens."""
        for num_tokens in self._plan.tokens:
            call, work = self._batches(num_tokens)
            yield take_samples(f"layer {num_tokens}", work, call, probes, self._plan.repeat, progress)

    def _batches(self, num_tokens: int) -> tuple[Callable[[], float], Work]:
        """So many calls that one sample takes a while, each with its own routing."""
        H, I, E, K = self._plan.shape
        rng = np.random.default_rng(num_tokens)
        x = rng.standard_normal((num_tokens, H), np.float32)
        weights = np.full((num_tokens, K), 1 / K, np.float32)
        seconds = self._run(x, [_random_experts(rng, num_tokens, E, K)], weights)
        num_calls = min(max(int(SAMPLE_SECONDS / seconds), 1), MAX_CALLS)
        routings = [_random_experts(rng, num_tokens, E, K) for _ in range(num_calls)]
        work = Work(
            num_steps=num_calls,
            num_tokens=num_calls * num_tokens,
            operations=2 * num_calls * num_tokens * K * 3 * H * I,
            peak=self.peak(num_tokens),
        )
        return lambda: self._run(x, routings, weights), work

    def _run(self, x: Floats, routings: list[Ids], weights: Floats) -> float:
        started = time.perf_counter()
        for ids in routings:
            layer = self._layers[self._calls % len(self._layers)]
            kernels.expert_mlp(self._pool, layer, x, ids, weights)
            self._calls += 1
        return time.perf_counter() - started

    def _packed(self, weight: Weight) -> Weight:
        return kernels.pack(self._pool, weight) if kernels.has_panels(weight) else self._copied(weight)

    def _copied(self, weight: Weight) -> Weight:
        return Weight(weight.type, weight.blocks.copy())


def _random_layer(plan: LayerPlan) -> ExpertMlp:
    H, I, E, _ = plan.shape
    inner, outer = plan.types
    gate, up = (random_weight(inner, E, I, H, seed=seed) for seed in (1, 2))
    return ExpertMlp(ExpertWeight(gate), ExpertWeight(up), ExpertWeight(random_weight(outer, E, H, I, seed=3)))


def _random_experts(rng: np.random.Generator, num_tokens: int, E: int, K: int) -> Ids:
    """(T, K), each token's different from each other."""
    order = np.argpartition(rng.random((num_tokens, E)), K - 1, axis=1)
    return np.ascontiguousarray(order[:, :K], np.int32)
