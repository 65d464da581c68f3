"""`ktdesk bench` without its command line: loads or makes what is measured, measures it, and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ktdesk.bench_report import BenchReport
from ktdesk.errors import UsageError
from ktdesk.loading import loaded_engine
from ktdesk.options import EngineOptions
from ktdesk.terminal import Progress
from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.benchmark.conditions import LoadMeter, read_machine
from ktdesk_engine.benchmark.hybrid import HybridBench, HybridTimes
from ktdesk_engine.benchmark.layer import SHAPES, LayerBench, LayerPlan, LayerShape
from ktdesk_engine.benchmark.model import ModelBench, ModelPlan
from ktdesk_engine.benchmark.model_weights import ModelWeights
from ktdesk_engine.benchmark.samples import Row, Spread
from ktdesk_engine.compute import decide_compute
from ktdesk_engine.config import EngineConfig, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.kernels.pools import NEVER
from ktdesk_engine.machine import available_memory_bytes, thread_places
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.plan.corrections import conditions_of_run, corrections_for
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.prove.compare import compared
from ktdesk_wizard.prove.measuring import conditions_of, measured_run, memory_sample
from ktdesk_wizard.prove.run import MeasuredRun


class Bench:
    """Takes rows, shows how far it is, and notes what else ran."""

    def __init__(self, repeat: int) -> None:
        self._repeat = repeat
        self._progress = Progress()
        self._current = ""
        self._meter = LoadMeter()

    def show(self, name: str, done: int, wanted: int) -> None:
        if name != self._current:
            self._progress.step(name)
            self._current = name
        self._progress.tell(f"{done} of {wanted}")

    def finish(self) -> None:
        self._progress.erase()

    @property
    def taken_cores(self) -> float:
        """By others, so far."""
        return self._meter.read().taken_cores

    def report(
        self,
        subject: str,
        config: EngineConfig,
        rows: list[Row],
        notes: tuple[str, ...],
        facts: Mapping[str, Any],
    ) -> BenchReport:
        assert config.num_threads is not None
        assert config.isa is not None
        return BenchReport(
            subject=subject,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            machine=read_machine(),
            isa=config.isa,
            threads=config.num_threads,
            compute=config.compute,
            repeat=self._repeat,
            notes=notes,
            facts=facts,
            load=self._meter.read(),
            rows=tuple(rows),
        )


def bench_model(
    path: Path, plan: ModelPlan, options: EngineOptions, facts: MachineFacts, earlier: Sequence[MeasuredRun]
) -> tuple[BenchReport, MeasuredRun]:
    """options without a context: the plan knows it. earlier: runs that correct what is planned."""
    with loaded_engine(path, replace(options, context=plan.context), Engine.load) as engine:
        model = ModelBench(engine, plan)
        conditions = conditions_of(engine, facts)
        bench = Bench(plan.repeat)
        try:
            bench.show("memory", 0, 1)
            memory = memory_sample(conditions, model.warm_up())  # before the probes, which need some too
            rows = list(model.rows(Probes(engine.pool, model.peaks), bench.show))
            python = _python_shares(model, bench) if plan.answer else {}
        finally:
            bench.finish()
        notes = (
            *_notes(model.weights),
            *tile_notes(engine.config.min_tile_rows),
            _cache_note(engine),
            *_python_notes(python),
        )
        run = measured_run(conditions, plan, rows, memory, bench.taken_cores)
        about = _facts(path, model.weights) | {
            "cache": {"type": engine.config.cache_type, "token_bytes": _cache_token_bytes(engine)},
            "program": engine.config.program,
            "python_share": {name: asdict(share) for name, share in python.items()},
        }
        report = bench.report(_subject(engine), engine.config, rows, notes, about)
        corrections = corrections_for(conditions.model, earlier, conditions_of_run(run))
        return replace(report, planned=tuple(compared(run, corrections))), run


def bench_hybrid(options: EngineOptions, repeat: int) -> HybridTimes:
    """With one thread fewer than there are cores, unless the options say otherwise: the accelerator's has the other."""
    places = thread_places(options.threads)
    if options.threads is None:
        places = places[: max(len(places) - 1, 1)]
    pool = kernels.worker_pool(len(places), options.isa, places)
    return HybridBench(pool, WeightType.Q4_K).measure(repeat)


def bench_layer(plan: LayerPlan, options: EngineOptions) -> BenchReport:
    config = options.config
    places = thread_places(config.num_threads)
    pool = kernels.worker_pool(len(places), config.isa, places)
    bench = Bench(plan.repeat)
    try:
        bench.show("making a layer of random weights", 0, plan.repeat)
        layer = LayerBench(pool, plan, read_machine().l3_bytes, available_memory_bytes())
        rows = list(layer.rows(Probes(pool, layer.peaks), bench.show))
    finally:
        bench.finish()
    compute = decide_compute(plan.compute, pool)
    decided = EngineConfig(compute=compute, num_threads=pool.num_threads, isa=pool.isa)
    inner, outer = (weight_type.name for weight_type in plan.types)
    notes = (
        f"gate and up {inner}, down {outer}: {plan.file_bytes / 1e6:.1f} MB, "
        f"{layer.layer_bytes / 1e6:.1f} MB in memory",
        *tile_notes(pool.min_tile_rows),
    )
    shape = ",".join(map(str, plan.shape))
    facts = {
        "layer": {
            "shape": dict(zip("HIEK", plan.shape, strict=True)),
            "types": [inner, outer],
            "file_bytes": plan.file_bytes,
            "memory_bytes": layer.layer_bytes,
        }
    }
    return bench.report(f"one layer {shape} (H,I,E,K) of {plan.type.name}", decided, rows, notes, facts)


def tile_notes(min_tile_rows: int | None) -> tuple[str, ...]:
    """From where on tiles are used; or why they cannot be."""
    why = kernels.why_no_amx()
    if why is not None:
        return (f"no tiles: {why}",)
    if min_tile_rows is None or min_tile_rows == NEVER:
        return ()
    return (f"on tiles from {min_tile_rows} tokens of an expert on",)


def parse_shape(text: str) -> LayerShape:
    """The name of a shape, or H,I,E,K."""
    if text in SHAPES:
        return SHAPES[text]
    parts = text.split(",")
    if len(parts) != 4 or not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--shape is one of {', '.join(SHAPES)}, or four numbers H,I,E,K: {text!r}")
    return LayerShape(*map(int, parts))


def parse_type(text: str) -> WeightType:
    if text.upper() not in WeightType.__members__:
        raise UsageError(f"--type is one of {', '.join(WeightType.__members__)}: {text!r}")
    return WeightType[text.upper()]


def parse_tokens(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--tokens is numbers with commas between them: {text!r}")
    return tuple(map(int, parts))


def _subject(engine: Engine) -> str:
    name = engine.file.keys.string("general.name", "")
    size = sum(shard.stat().st_size for shard in engine.file.shards)
    return f"{name or engine.file.path.name}, {engine.file.architecture}, {size / 2**30:.2f} GiB"


def _notes(weights: ModelWeights) -> tuple[str, ...]:
    in_file, in_memory = (weights.of_token(amount) / 1e6 for amount in (weights.file_bytes, weights.memory_bytes))
    routed = f", {weights.num_used} of {weights.num_experts} experts" if weights.num_experts else ""
    return (f"one token touches {in_memory:.1f} MB of weights ({in_file:.1f} MB in the file){routed}",)


def _python_shares(model: ModelBench, bench: Bench) -> dict[str, Spread]:
    """Of the time of a decode step of one stream, by how tokens are chosen."""
    shares = {}
    for name, sampling in (("greedy", SamplingConfig(temperature=0)), ("sampled", SamplingConfig(seed=0))):
        bench.show(f"Python's share, {name}", 0, 1)
        shares[name] = model.python_share(sampling)
    return shares


def _python_notes(shares: Mapping[str, Spread]) -> tuple[str, ...]:
    if not shares:
        return ()
    parts = (f"{share.median:.1%} {name}" for name, share in shares.items())
    return (f"of a decode step of one stream, Python and the choice of the token take {', '.join(parts)}",)


def _cache_note(engine: Engine) -> str:
    program = "" if engine.config.program else "; decoding without recorded programs"
    return f"cache in {engine.config.cache_type}, {_cache_token_bytes(engine) / 1e3:.1f} kB a token{program}"


def _cache_token_bytes(engine: Engine) -> int:
    assert engine.config.cache_type is not None
    return sum(shape.num_bytes(engine.config.cache_type) for shape in engine.model.cache_shapes)


def _facts(path: Path, weights: ModelWeights) -> dict[str, Any]:
    return {
        "model": {
            "path": str(path),
            "token_file_bytes": weights.of_token(weights.file_bytes),
            "token_memory_bytes": weights.of_token(weights.memory_bytes),
            **{key: value for key, value in asdict(weights).items() if key.startswith("num_")},
            "file_bytes": weights.file_bytes._asdict(),
            "memory_bytes": weights.memory_bytes._asdict(),
            "num_weights": weights.num_weights._asdict(),
        }
    }
