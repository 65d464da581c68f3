"""Whole models in memory: the hybrid against the CPU alone, recorded steps against others, and what each gains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import CachedSequence
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.gpu_test.memory_model import DeepSeekModel, QwenModel, model_in_memory
from ktdesk_wizard.gpu_test.outcome import Figure
from ktdesk_wizard.gpu_test.subject import SMALL, Check, SkippedError, Subject, WrongResultError, error_of

HYBRID_ERROR = 2e-3
"""Of logits, over all layers of a model that is computed in float32 on both sides."""
TOKENS = (70, 71, 72, 5, 9, 200)
SHARED_TOKENS = 256
PIECES = 6
"""Of a prompt: the first goes the CPU's way, the second the other, then each is measured again."""
MIN_CPU_RATE = 0.9
MIN_GRAPH_GAIN = 1.2
SMALL_MODELS = {"grouped queries": QwenModel, "latent attention": DeepSeekModel}


def model_proofs() -> list[Check]:
    """Of small models."""
    checks = [Check(f"hybrid against the CPU, {name}", partial(_hybrid, name)) for name in SMALL_MODELS]
    checks.append(Check("memory that experts and cache share", _shared_memory))
    return [*checks, Check("recorded steps against others", _recorded)]


def model_timings() -> list[Check]:
    """Of layers of real shape."""
    return [
        Check("decoding, all experts on the CPU", _decode_on_cpu),
        Check("decoding, half of the experts resident", _decode_half),
        Check("recorded steps, gain", _graph_gain),
        Check("deferral, gain", _deferral),
        Check("long prompts, break-even", _break_even),
    ]


@contextmanager
def _engine(path: Path, **settings: Any) -> Iterator[Engine]:
    with Engine.load(path, EngineConfig(**{"context": 2048, **settings})) as engine:
        yield engine


@contextmanager
def _small(name: str) -> Iterator[Path]:
    model = SMALL_MODELS[name](SMALL.model, WeightType.Q4_K)
    with model_in_memory(model, model.architecture) as path:
        yield path


def _logits(engine: Engine, prompt: Sequence[int] = TOKENS[:3]) -> Floats:
    """Of a prompt, and of tokens behind it, one at a time."""
    sequence = CachedSequence()
    rows = [np.array(engine.runner.prefill(sequence, prompt))]
    rows += [engine.runner.decode([sequence], [token])[0].copy() for token in TOKENS[3:]]
    engine.runner.release(sequence)
    return np.array(rows)


def _hybrid(name: str, subject: Subject) -> Iterator[Figure]:
    experts = SMALL.model.layers * SMALL.model.experts.E
    with _small(name) as path:
        exact: dict[str, Any] = {"compute": "float32", "cache_type": "float32", "program": subject.records}
        with _engine(path, compute="float32", cache_type="float32") as engine:
            want = _logits(engine)
        for what, num_resident in (("no expert resident", 0), ("half of them", experts // 2), ("all of them", experts)):
            with _engine(path, accelerator=subject.kind, accelerator_experts=num_resident, **exact) as engine:
                yield error_of(what, _logits(engine), want, HYBRID_ERROR)


def _shared_memory(subject: Subject) -> Iterator[Figure]:
    """Pieces of a prompt so small that they are computed exactly, until the cache is full: experts have to leave."""
    exact: dict[str, Any] = {"compute": "float32", "cache_type": "float32", "program": subject.records}
    exact |= {"context": SHARED_TOKENS, "prefill_chunk": 16}
    tokens = np.random.default_rng(4).integers(0, 255, SHARED_TOKENS - 8).tolist()
    with _small("grouped queries") as path:
        with _engine(path, **exact) as engine:
            want = _logits(engine, tokens)
        with _engine(path, accelerator=subject.kind, **exact) as engine:
            engine.resize_experts(engine.cache.num_bytes)  # all do not fit beside a full cache
            got, sharing = _logits(engine, tokens), engine.experts.sharing
    if sharing is None or not sharing.num_experts_left:
        raise WrongResultError("no expert left when the cache needed its memory")
    yield error_of("a full cache", got, want, HYBRID_ERROR)
    yield Figure("experts that left for it", sharing.num_experts_left)


def _recorded(subject: Subject) -> Iterator[Figure]:
    _need_recorder(subject)
    experts = SMALL.model.layers * SMALL.model.experts.E // 2
    with _small("grouped queries") as path:
        rows = []
        for program in (False, True):
            with _engine(
                path,
                compute="int8",  # no choice between kernels is measured: both have the same
                accelerator=subject.kind,
                accelerator_experts=experts,
                program=program,
                move_ms=0.0,
            ) as engine:
                rows.append(_logits(engine))
    yield error_of("recorded", rows[1], rows[0], 1e-5)


def _need_recorder(subject: Subject) -> None:
    if not subject.records:
        raise SkippedError("steps are recorded on a GPU only")


@contextmanager
def _real(subject: Subject, num_resident: int, **settings: Any) -> Iterator[Engine]:
    """Layers of real shape, with so many experts on the device."""
    model = QwenModel(subject.sizes.model, WeightType.Q4_K)
    settings = {"program": subject.records, "move_ms": 0.0, **settings}
    with (
        model_in_memory(model, model.architecture) as path,
        _engine(path, accelerator=subject.kind, accelerator_experts=num_resident, **settings) as engine,
    ):
        yield engine


def _step_seconds(engine: Engine, num_steps: int) -> float:
    """Of a decode step of one sequence, tokens at random: the median, without the first, which records."""
    tokens = np.random.default_rng(1).integers(0, 255, num_steps + 2).tolist()
    sequence = CachedSequence()
    engine.runner.prefill(sequence, tokens[:8])
    samples = []
    for token in tokens:
        started = time.perf_counter()
        engine.runner.decode([sequence], [token])
        samples.append(time.perf_counter() - started)
    engine.runner.release(sequence)
    return statistics.median(samples[2:])


def _experts_seconds(subject: Subject, engine: Engine) -> float:
    """Of one token's experts in all layers, on the CPU alone."""
    H, _, E, K = subject.sizes.model.experts
    rng = np.random.default_rng(2)
    x, weights = rng.standard_normal((1, H), np.float32), np.full((1, K), 1 / K, np.float32)
    samples = []
    for _ in range(subject.sizes.decode_steps):
        chosen = [rng.permutation(E)[None, :K].astype(np.int32) for _ in engine.model.moe_layers]
        started = time.perf_counter()
        for layer, ids in zip(engine.model.moe_layers, chosen, strict=True):
            kernels.expert_mlp(engine.pool, layer.experts, x, ids, weights)
        samples.append(time.perf_counter() - started)
    return statistics.median(samples[1:])


def _decode_on_cpu(subject: Subject) -> Iterator[Figure]:
    with _real(subject, 0, stream_prompts=False) as engine:
        alone = _experts_seconds(subject, engine)
        step = _step_seconds(engine, subject.sizes.decode_steps)
    yield Figure("a step", 1e3 * step, "ms")
    yield Figure("its experts alone, on the CPU", 1e3 * alone, "ms")
    yield subject.aim(Figure("of the rate of the CPU's experts", alone / step, at_least=MIN_CPU_RATE))


def _decode_half(subject: Subject) -> Iterator[Figure]:
    shape = subject.sizes.model
    with _real(subject, shape.layers * shape.experts.E // 2, stream_prompts=False) as engine:
        half = _step_seconds(engine, subject.sizes.decode_steps)
        engine.resize_experts(0)
        none = _step_seconds(engine, subject.sizes.decode_steps)
    yield Figure("a step", 1e3 * half, "ms")
    yield Figure("times as fast as with all on the CPU", none / half)


def _graph_gain(subject: Subject) -> Iterator[Figure]:
    """With all experts resident: the time between operations is what replaying saves."""
    _need_recorder(subject)
    shape = subject.sizes.model
    seconds = []
    for program in (True, False):
        with _real(subject, shape.layers * shape.experts.E, stream_prompts=False, program=program) as engine:
            seconds.append(_step_seconds(engine, subject.sizes.decode_steps))
    yield Figure("a recorded step", 1e3 * seconds[0], "ms")
    yield Figure("one that is not", 1e3 * seconds[1], "ms")
    yield subject.aim(Figure("times as fast", seconds[1] / seconds[0], at_least=MIN_GRAPH_GAIN))


def _deferral(subject: Subject) -> Iterator[Figure]:
    with _real(subject, 0, stream_prompts=False) as engine:
        seconds: list[float] = []

        def measure() -> float:
            seconds.append(_step_seconds(engine, subject.sizes.decode_steps))
            return seconds[-1]

        chosen = engine.experts.decide_deferral(measure)
    for num_deferred, step in enumerate(seconds):
        yield Figure(f"a step with {num_deferred} deferred", 1e3 * step, "ms")
    yield Figure("fewest that hide the CPU", chosen)
    yield Figure("times as fast with them", seconds[0] / seconds[chosen])


def _break_even(subject: Subject) -> Iterator[Figure]:
    prompt = subject.sizes.prompt
    tokens = np.random.default_rng(3).integers(0, 255, prompt).tolist()
    with _real(subject, 0, prefill_chunk=prompt) as engine:
        seconds = []
        for _ in range(PIECES):
            sequence = CachedSequence()
            seconds.append(_timed(partial(engine.runner.prefill, sequence, tokens)))
            engine.runner.release(sequence)
        found = engine.experts.prompt_break_even
    if found is None:
        raise SkippedError("two layers of experts do not fit into a quarter of what is free on the device")
    yield Figure(f"{prompt} tokens, the CPU's way", 1e3 * seconds[0], "ms")
    yield Figure(f"{prompt} tokens, all experts passing", 1e3 * min(seconds[1:]), "ms")
    yield Figure("worth it from", found, "tokens")


def _timed(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started
