"""The link between accelerator and CPU: rates of copies, latency of the hand-off; and what kernels read a second."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ktdesk_engine.backends.accelerator import CopyWay, HostExperts
from ktdesk_engine.backends.backend import Recorder
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.benchmark.random_weights import random_weight
from ktdesk_engine.experts.deferral import deferral_cell
from ktdesk_engine.experts.hybrid import HybridExperts
from ktdesk_engine.experts.moe import RoutedExperts
from ktdesk_engine.experts.use import ExpertUse
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Ids, Weight
from ktdesk_engine.kernels.handoff import HandOff
from ktdesk_engine.kernels.routing import Routes, RoutingRule
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.gpu_test.outcome import Figure
from ktdesk_wizard.gpu_test.subject import Check, Subject, as_weight, floats

HIDDEN, WIDTH, EXPERTS, USED = 2048, 32, 8, 8
LAYERS = 24
"""Of a recorded step whose experts are nobody's: it hands over and takes back, and computes nothing."""
WAIT_SECONDS = 1e-3
"""So long a device waits before the CPU answers."""
MAX_HAND_OFF_US = 10
MIN_BANDWIDTH_SHARE = 0.7
READ_TYPES = (WeightType.Q4_0, WeightType.Q4_K, WeightType.Q8_0, WeightType.Q6_K)
"""Two that lie as codes of 4 bits, and two of 8."""
MATRICES = 4


def link_checks() -> list[Check]:
    return [
        Check("copies", _copies),
        Check("hand-off, one way", _one_way),
        Check("hand-off in a recorded step", _in_step),
        *(Check(f"reading {kind.name} for one token", partial(_reading, kind)) for kind in READ_TYPES),
    ]


def _copies(subject: Subject) -> Iterator[Figure]:
    num_bytes = subject.sizes.copy_bytes
    ways: dict[CopyWay, str] = {"up": "to the device", "down": "from the device", "within": "its memory"}
    for way, name in ways.items():
        seconds = statistics.median(subject.accelerator.copy_seconds(num_bytes, way) for _ in range(3))
        passes = 2 if way == "within" else 1  # reads and writes
        yield Figure(name, passes * num_bytes / seconds / 1e9, "GB/s")


def _one_way(subject: Subject) -> Iterator[Figure]:
    """From the call to the flag that the CPU sees; from the CPU's flag to the end of what waited for it."""
    hand_off = HandOff(1, 1, HIDDEN, USED)
    subject.kept.append(hand_off)
    subject.accelerator.pin(hand_off)
    repeat = subject.sizes.repeat
    for name, seconds_of in (("to the CPU", _given_seconds), ("from the CPU", _taken_seconds)):
        yield Figure(name, 1e6 * statistics.median(seconds_of(subject, hand_off) for _ in range(repeat)), "us")


def _given_seconds(subject: Subject, hand_off: HandOff) -> float:
    device = subject.accelerator
    x, routes = subject.on_device(floats(1, HIDDEN)), _routes(subject)
    device.synchronize()
    ready = _flag(hand_off, hand_off.addresses(0).ready)
    started = time.perf_counter()
    device.hand_over(hand_off, 0, x, routes)
    while not ready[0]:
        if time.perf_counter() - started > 5:
            raise TimeoutError("the CPU did not see the flag within five seconds")
    seconds = time.perf_counter() - started
    ready[0] = 0
    device.synchronize()
    return seconds


def _taken_seconds(subject: Subject, hand_off: HandOff) -> float:
    device = subject.accelerator
    x = subject.on_device(floats(1, HIDDEN))
    device.synchronize()
    done, answered = _flag(hand_off, hand_off.addresses(0).done), [0.0]

    def answer() -> None:
        time.sleep(WAIT_SECONDS)
        answered[0] = time.perf_counter()
        done[0] = 1

    cpu = threading.Thread(target=answer)
    cpu.start()
    subject.here(device.take_back(hand_off, 0, x))
    ended = time.perf_counter()
    cpu.join()
    return ended - answered[0]


def _flag(hand_off: HandOff, address: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    start = address - hand_off.memory.ctypes.data
    return hand_off.memory[start : start + 4].view(np.uint32)


def _routes(subject: Subject) -> Routes:
    rule = RoutingRule(EXPERTS, USED)
    return subject.accelerator.choose_experts(subject.on_device(floats(1, EXPERTS)), rule, None)


def _in_step(subject: Subject) -> Iterator[Figure]:
    """What handing over and taking back add to a recorded step, by its layers."""
    steps = [_recorded_step(subject, hands_off) for hands_off in (True, False)]
    seconds: list[list[float]] = [[], []]
    for _ in range(10 * subject.sizes.repeat):
        for step, samples in zip(steps, seconds, strict=True):
            samples.append(_seconds(step))
    with_it, without = (statistics.median(samples) for samples in seconds)
    figure = Figure("a layer", 1e6 * (with_it - without) / LAYERS, "us", at_most=MAX_HAND_OFF_US)
    yield subject.aim(figure)


class _Layer:
    """What HybridExperts asks of a layer."""

    def __init__(self, experts: ExpertMlp) -> None:
        self.experts = experts
        self.hidden = HIDDEN
        self.rule = RoutingRule(EXPERTS, USED)
        self.routed: RoutedExperts


def _recorded_step(subject: Subject, hands_off: bool) -> Callable[[], None]:
    device = subject.accelerator
    sizes = ((WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH))
    gate, up, down = (ExpertWeight(random_weight(WeightType.Q8_0, EXPERTS, *size)) for size in sizes)
    mlp = ExpertMlp(gate, up, down)
    layers = [_Layer(mlp) for _ in range(LAYERS)]
    hybrid = HybridExperts(
        device,
        CpuBackend(subject.pool),
        layers,
        [HostExperts(mlp, mlp)] * LAYERS,
        ExpertUse(LAYERS, EXPERTS, USED),
        deferral_cell(0),
        max_tokens=1,
    )
    hybrid.residency.slot_of_expert[:] = 0  # so that the CPU finds nothing to compute
    subject.kept.append(hybrid)
    rows, logits = as_weight(floats(1, HIDDEN)), as_weight(floats(1, EXPERTS))

    def compute(ids: Ids) -> None:
        x = device.embed(rows, device.upload(ids))
        routes = device.choose_experts(device.embed(logits, device.upload(ids)), layers[0].rule, None)
        for layer in layers:
            finish = layer.routed(x, routes, True) if hands_off else None
            device.add(x, finish() if finish else x)

    return _replay_of(subject, compute, hybrid.program if subject.records else None)


def _replay_of(
    subject: Subject, compute: Callable[[Ids], None], make: Callable[[], Recorder] | None
) -> Callable[[], None]:
    """Operations that read ids (1,): recorded, where that can be done, and computed once before."""
    device, first = subject.accelerator, np.zeros(1, np.int32)

    def eager() -> None:
        compute(first)
        device.synchronize()

    eager()
    if make is None:
        return eager
    program = make()
    ids = program.ids(1)
    with program.recording():
        compute(ids)
    device.synchronize()

    def replay() -> None:
        program.replay()
        device.synchronize()

    return replay


def _reading(kind: WeightType, subject: Subject) -> Iterator[Figure]:
    """Large matrices times one vector, recorded: bytes of the weights, by what the memory gives."""
    sizes, device = subject.sizes, subject.accelerator
    made = random_weight(kind, sizes.large_rows, sizes.large_rows, seed=1)
    weights = [device.weight(Weight(kind, made.blocks.copy())) for _ in range(MATRICES)]
    replay = _products(subject, weights, sizes.large_rows)
    _seconds(replay)
    seconds = statistics.median(_seconds(replay) for _ in range(sizes.repeat))
    memory = 2 * sizes.copy_bytes / device.copy_seconds(sizes.copy_bytes, "within")
    read = MATRICES * made.blocks.nbytes / seconds
    yield Figure("weights read", read / 1e9, "GB/s")
    yield subject.aim(Figure("of what its memory gives", read / memory, at_least=MIN_BANDWIDTH_SHARE))


def _products(subject: Subject, weights: list[Weight], length: int) -> Callable[[], None]:
    device, rows = subject.accelerator, as_weight(floats(1, length))

    def compute(ids: Ids) -> None:
        x = device.embed(rows, device.upload(ids))
        for weight in weights:
            device.linear(weight, x)

    return _replay_of(subject, compute, device.program if subject.records else None)


def _seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started
