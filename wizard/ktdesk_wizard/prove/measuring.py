"""Measures a loaded engine, and holds it against what a plan would have said for the machine of that moment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from ktdesk_engine.benchmark.ceilings import Probes
from ktdesk_engine.benchmark.conditions import LoadMeter
from ktdesk_engine.benchmark.model import PLANNED_PEAK, TILE_PEAK, ModelBench, ModelPlan, RowKind
from ktdesk_engine.benchmark.samples import Progress, Row
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_wizard.plan.ceilings import Ceilings, ceilings_of
from ktdesk_wizard.plan.corrections import FORMULAS
from ktdesk_wizard.plan.model import PlannedModel, model_of_file
from ktdesk_wizard.plan.plan import MEMORY, Prediction
from ktdesk_wizard.plan.planner import make_plan, shares_on_card
from ktdesk_wizard.plan.speed import GpuShare, predict_decode, predict_prefill
from ktdesk_wizard.plan.wishes import Wishes, engine_abilities
from ktdesk_wizard.probe.fact import measured
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import machine_key
from ktdesk_wizard.prove.run import MeasuredRun, MemorySample, SpeedSample, engine_build

STATUS = Path("/proc/self/status")
MOMENT = "beside the samples"
UNDISTURBED = 0.75
"""Of the samples, in ascending order."""


@dataclass(frozen=True)
class Conditions:
    """Under which a model is measured."""

    facts: MachineFacts
    model: PlannedModel
    config: EngineConfig
    """With everything decided."""


def measure_engine(
    engine: Engine, facts: MachineFacts, plan: ModelPlan, progress: Progress = lambda name, done, wanted: None
) -> MeasuredRun:
    """Memory first: the probes need some too."""
    conditions = conditions_of(engine, facts)
    bench = ModelBench(engine, plan)
    memory = memory_sample(conditions, bench.warm_up())
    meter = LoadMeter()
    rows = list(bench.rows(Probes(engine.pool, bench.peaks), progress))
    return measured_run(conditions, plan, rows, memory, meter.read().taken_cores)


def conditions_of(engine: Engine, facts: MachineFacts) -> Conditions:
    return Conditions(facts, model_of_file(engine.file.path), engine.config)


def measured_run(
    conditions: Conditions, plan: ModelPlan, rows: Sequence[Row], memory: MemorySample | None, busy_cores: float
) -> MeasuredRun:
    """rows: those of the plan, in its order. busy_cores: that others used meanwhile."""
    model, config = conditions.model, conditions.config
    assert config.num_threads is not None
    assert config.isa is not None
    assert config.cache_type is not None
    kinds = zip(plan.row_kinds, rows, strict=True)
    return MeasuredRun(
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        machine=machine_key(conditions.facts),
        build=engine_build(),
        formulas=FORMULAS,
        model=model.fingerprint,
        title=model.name,
        compute=config.compute,
        isa=config.isa,
        num_threads=config.num_threads,
        cache_type=config.cache_type,
        speeds=tuple(_speed_sample(conditions, kind, row) for kind, row in kinds if kind.batch == 1),
        memory=memory,
        shape=model.shape,
        accelerator=config.accelerator or "",
        busy_cores=round(busy_cores, 2),
    )


def _speed_sample(conditions: Conditions, kind: RowKind, row: Row) -> SpeedSample:
    """The speed is held against what is planned for the ceilings beside the samples, which are those of the run's
    threads, for the machine drifts; both undisturbed. Each sample against its own would add the noise of both."""
    ceilings = [sample.ceilings for sample in row.samples]
    tok_s = undisturbed(row.work.num_tokens / sample.seconds for sample in row.samples)
    read = undisturbed(moment.read_bytes_s for moment in ceilings)
    peak = undisturbed(moment.peak_ops_s[PLANNED_PEAK] for moment in ceilings)
    has_tiles = TILE_PEAK in ceilings[0].peak_ops_s
    tiles = undisturbed(moment.peak_ops_s[TILE_PEAK] for moment in ceilings) if has_tiles else None
    is_planned = conditions.config.accelerator != "host-thread"  # of which no plan knows
    moment = _ceilings(conditions.facts, read, peak, tiles)
    planned = _planned(conditions, kind, moment).tok_s if is_planned else None
    return SpeedSample(kind.phase, kind.num_tokens, kind.depth, tok_s, read, peak, tiles, planned)


def undisturbed(rates: Iterable[float]) -> float:
    """The upper quartile: what else runs on a machine only ever slows. Runs of a model differed by up to 9 % in
    their medians and by up to 5 in these, from the same samples (docs/planning.md)."""
    ascending = sorted(rates)
    return ascending[round(UNDISTURBED * (len(ascending) - 1))]


def _ceilings(facts: MachineFacts, read: float, peak: float, tiles: float | None) -> Ceilings:
    cpu = replace(facts.cpu, peak_ops_s=measured(peak, MOMENT))
    if tiles is not None:
        cpu = replace(cpu, amx=replace(cpu.amx, measured=measured(tiles, MOMENT)))
    memory = replace(facts.memory, read_bytes_s=measured(read, MOMENT))
    return ceilings_of(replace(facts, cpu=cpu, memory=memory), facts.cpu.num_threads.value or 1)


def _planned(conditions: Conditions, kind: RowKind, ceilings: Ceilings) -> Prediction:
    model, config = conditions.model, conditions.config
    shares = () if config.accelerator is None else _on_card(conditions)
    if kind.phase == "prefill":
        assert config.prefill_chunk is not None
        return predict_prefill(model, ceilings, config.prefill_chunk, config.compute, kind.num_tokens, kind.depth)
    assert config.cache_type is not None
    return predict_decode(model, ceilings, shares, kind.depth + kind.num_tokens // 2, config.cache_type, config.compute)


def _on_card(conditions: Conditions) -> tuple[GpuShare, ...]:
    """What a plan puts on the machine's card; nothing on an accelerator that is none."""
    config = conditions.config
    wishes = Wishes(
        context=config.context,
        cache_type=config.cache_type,
        devices="gpu",
        max_gpu_bytes=config.accelerator_bytes,
        placement_rules=json.dumps([asdict(rule) for rule in config.placement_rules]),
    )
    return shares_on_card(conditions.facts, conditions.model, wishes, engine_abilities())


def memory_sample(conditions: Conditions, num_tokens: int) -> MemorySample | None:
    """Now. num_tokens: that were in the cache at most."""
    peak = peak_memory_bytes()
    config = conditions.config
    if peak is None or config.accelerator is not None:  # of whose memory the process does not tell
        return None
    wishes = Wishes(
        context=num_tokens,
        cache_type=config.cache_type,
        num_threads=config.num_threads,
        compute=config.compute,
        devices="cpu",
    )
    plan = make_plan(conditions.facts, conditions.model, wishes, engine_abilities(), has_server=False)
    return MemorySample(peak, plan.bytes_of(MEMORY))


def peak_memory_bytes(status: Path = STATUS) -> int | None:
    """That this process ever had, file pages that it looked at included. None where the system does not tell."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None
