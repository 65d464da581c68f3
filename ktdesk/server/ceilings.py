"""What this machine could do at best, as `ktdesk probe --measure` found, against what an engine does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ktdesk_engine import kernels
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.machine import thread_places
from ktdesk_engine.text_engine import TextEngine
from ktdesk_wizard.probe.fact import Fact
from ktdesk_wizard.probe.machine_facts import MachineFacts
from ktdesk_wizard.probe.measurement import with_measurement
from ktdesk_wizard.probe.probe import probe


@dataclass(frozen=True)
class Ceilings:
    """None: it was not measured."""

    read_bytes_s: float | None = None
    ops_s: float | None = None
    """Of bytes, on what the prompts are computed with: tiles or vectors."""


UNKNOWN = Ceilings()


def ceilings_of(engine: TextEngine, folder: Path | None) -> Ceilings:
    """Nothing where the engine has not as many threads as were measured."""
    if folder is None or engine.config.num_threads != len(thread_places()):
        return UNKNOWN
    facts = with_measurement(probe(folder), folder)
    return Ceilings(_measured(facts.memory.read_bytes_s), _peak(engine.config, facts))


def _peak(config: EngineConfig, facts: MachineFacts) -> float | None:
    """Peaks of float32, of bfloat16, and of vectors other than the widest are not measured."""
    if config.compute == "mixed":
        return _measured(facts.cpu.amx.measured)
    widest = [isa for isa in kernels.isas() if isa != "amx"][-1]
    is_measured = config.compute == "int8" and config.isa in (None, "amx", widest)
    return _measured(facts.cpu.peak_ops_s) if is_measured else None


def _measured(fact: Fact[float]) -> float | None:
    return fact.value if fact.confidence == "measured" else None
