"""The hybrid step on a host thread: what the hand-off costs, and what deferral hides.

Layers of random experts, an accelerator that computes nothing but takes as long as it is told, one recorded step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.backends.accelerator import HostExperts
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.backends.host_thread import Delays, HostThreadAccelerator
from ktdesk_engine.benchmark.layer import LayerShape
from ktdesk_engine.benchmark.random_weights import fitting_type, random_weight
from ktdesk_engine.experts.deferral import deferral_cell, max_deferred
from ktdesk_engine.experts.hybrid import HybridExperts
from ktdesk_engine.experts.hybrid_program import HybridProgram
from ktdesk_engine.experts.moe import RoutedExperts
from ktdesk_engine.experts.use import ExpertUse
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Floats, Ids, Weight, WorkerPool, streams
from ktdesk_engine.kernels.routing import Routes, RoutingRule
from ktdesk_engine.quants.formats import WeightType

SHAPE = LayerShape(2048, 768, 32, 8)
"""Qwen3-30B-A3B's, with fewer experts: memory is what they take."""
NUM_LAYERS = 24
NUM_DISTINCT = 4
"""Layers that have weights of their own: so much that no cache holds them."""
BESIDE_EXPERTS = 0.25
"""Of the accelerator's time in a layer, what it computes while the CPU has the input: shared and resident experts."""
WARM_STEPS = 3


class _Layer:
    """What HybridExperts asks of a layer."""

    def __init__(self, experts: ExpertMlp, shape: LayerShape) -> None:
        self.experts = experts
        self.hidden = shape.H
        self.rule = RoutingRule(shape.E, shape.K)
        self.routed: RoutedExperts


@dataclass(frozen=True)
class HybridTimes:
    """Seconds, medians of decode steps."""

    num_layers: int
    num_used: int
    cpu: float
    """All experts of a step, on the CPU alone."""
    accelerator: float
    """The accelerator's delays of a step, while the CPU has nothing to compute."""
    steps: tuple[float, ...]
    """With 0, 1, ... deferred experts."""
    hand_off: float
    """Of one layer: what handing over and taking back add to a step."""

    @property
    def longer(self) -> float:
        return max(self.cpu, self.accelerator)

    @property
    def over_sum(self) -> float:
        """The step without deferral by both sides one after the other."""
        return self.steps[0] / (self.cpu + self.accelerator)

    @property
    def over_longer(self) -> float:
        """The fastest step by the longer side."""
        return min(self.steps) / self.longer


class HybridBench:
    """One sequence's step through some layers."""

    def __init__(self, pool: WorkerPool, weight_type: WeightType, shape: LayerShape = SHAPE) -> None:
        self._pool = pool
        self._cpu = CpuBackend(pool)
        self._shape = shape
        distinct = [_random_experts(pool, weight_type, shape, seed) for seed in range(NUM_DISTINCT)]
        self._mlps = [distinct[index % NUM_DISTINCT] for index in range(NUM_LAYERS)]
        rng = np.random.default_rng(1)
        self._x = rng.standard_normal((1, shape.H), np.float32)
        self._ids = [rng.permutation(shape.E)[None, : shape.K].astype(np.int32) for _ in range(NUM_LAYERS)]
        self._weights = np.sort(rng.random((1, shape.K), np.float32))[:, ::-1].copy()

    def measure(self, repeat: int) -> HybridTimes:
        """Rounds in which each thing is timed once: a machine that changes its speed changes it for all of them."""
        delay = _median_seconds([self._experts_alone], repeat)[0] / NUM_LAYERS
        delays = Delays(attention=(1 - BESIDE_EXPERTS) * delay, experts=BESIDE_EXPERTS * delay)
        num_deferred = deferral_cell(0)
        step = self._step(delays, num_deferred)
        counts = range(max_deferred(self._shape.K) + 1)
        cpu, accelerator, *steps = _median_seconds(
            [
                self._experts_alone,
                self._step(delays, deferral_cell(0), on_cpu=False),
                *(partial(_with_deferred, step, num_deferred, count) for count in counts),
            ],
            repeat,
        )
        return HybridTimes(NUM_LAYERS, self._shape.K, cpu, accelerator, tuple(steps), self._hand_off_seconds(repeat))

    def _hand_off_seconds(self, repeat: int) -> float:
        with_it = self._step(Delays(), deferral_cell(0), on_cpu=False)
        without = self._step(Delays(), deferral_cell(0), hands_off=False)
        longer, shorter = _median_seconds([with_it, without], 10 * repeat)
        return (longer - shorter) / NUM_LAYERS

    def _experts_alone(self) -> None:
        for mlp, ids in zip(self._mlps, self._ids, strict=True):
            kernels.expert_mlp(self._pool, mlp, self._x, ids, self._weights)

    def _step(
        self, delays: Delays, num_deferred: Ids, on_cpu: bool = True, hands_off: bool = True
    ) -> Callable[[], None]:
        """A recorded step's replay. on_cpu: else the CPU finds nothing that it has to compute."""
        accelerator = HostThreadAccelerator(self._pool)
        layers = [_Layer(mlp, self._shape) for mlp in self._mlps]
        experts = [HostExperts(mlp, mlp) for mlp in self._mlps]
        use = ExpertUse(NUM_LAYERS, self._shape.E, self._shape.K)
        hybrid = HybridExperts(accelerator, self._cpu, layers, experts, use, num_deferred, max_tokens=1)
        if not on_cpu:
            hybrid.residency.slot_of_expert[:] = 0
        program = hybrid.program()
        x, routes = self._inputs(program)
        with program.recording():
            for layer, ids in zip(layers, routes, strict=True):
                _one_layer(accelerator, layer, x, ids, delays, hands_off)
        return program.replay

    def _inputs(self, program: HybridProgram) -> tuple[Floats, list[Routes]]:
        x = program.ids(1, self._shape.H).view(np.float32)
        x[:] = self._x
        weights = program.ids(1, self._shape.K).view(np.float32)
        weights[:] = self._weights
        routes = [Routes(program.ids(1, self._shape.K), weights) for _ in range(NUM_LAYERS)]
        for one, ids in zip(routes, self._ids, strict=True):
            one.ids[:] = ids
        return x, routes


def _one_layer(
    accelerator: HostThreadAccelerator, layer: _Layer, x: Floats, routes: Routes, delays: Delays, hands_off: bool
) -> None:
    """Every layer has the same input, so that random weights do not blow it up; the stream keeps the order."""
    streams.pause(accelerator.pool, delays.attention)
    finish = layer.routed(x, routes, True) if hands_off else None
    streams.pause(accelerator.pool, delays.experts)
    accelerator.add(x, finish() if finish else x)


def _with_deferred(step: Callable[[], None], num_deferred: Ids, count: int) -> None:
    num_deferred[0] = count
    step()


def _median_seconds(runs: Sequence[Callable[[], object]], repeat: int) -> list[float]:
    """Of each, in turn."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(WARM_STEPS + repeat):
        for run, samples in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            samples.append(time.perf_counter() - started)
    return [statistics.median(samples[WARM_STEPS:]) for samples in seconds]


def _random_experts(pool: WorkerPool, weight_type: WeightType, shape: LayerShape, seed: int) -> ExpertMlp:
    H, I, E, _ = shape
    inner, outer = fitting_type(weight_type, H), fitting_type(weight_type, I)
    sizes: Sequence[tuple[WeightType, int, int]] = ((inner, I, H), (inner, I, H), (outer, H, I))
    gate, up, down = (
        ExpertWeight(_packed(pool, random_weight(kind, E, num_rows, length, seed=3 * seed + part)))
        for part, (kind, num_rows, length) in enumerate(sizes)
    )
    return ExpertMlp(gate, up, down)


def _packed(pool: WorkerPool, weight: Weight) -> Weight:
    return kernels.pack(pool, weight) if kernels.has_panels(weight) else weight


def as_text(times: HybridTimes) -> str:
    """For people."""
    head = f"{times.num_layers} layers, {times.num_used} experts a token; the accelerator is a thread with delays"
    lines = [
        head,
        f"CPU's experts {times.cpu * 1e3:.2f} ms, accelerator's delays {times.accelerator * 1e3:.2f} ms a step",
        *(
            f"step with {deferred} deferred: {seconds * 1e3:.2f} ms, {seconds / (times.cpu + times.accelerator):.2f} x "
            f"their sum, {seconds / times.longer:.2f} x the longer"
            for deferred, seconds in enumerate(times.steps)
        ),
        f"hand-off: {times.hand_off * 1e6:.1f} us a layer",
    ]
    return "\n".join(lines)
