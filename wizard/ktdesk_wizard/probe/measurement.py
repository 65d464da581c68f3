"""What the machine does at best, measured with the engine's own kernels, and kept for the next plan.

A measurement is of one processor, number of threads, instruction set and version of ktdesk: another makes it void.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from statistics import median

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Ceilings, Probes
from ktdesk_engine.benchmark.kernel_shares import KernelShare, kernel_shares
from ktdesk_engine.machine import thread_places
from ktdesk_wizard.errors import HomeFolderError
from ktdesk_wizard.probe.fact import Fact, measured
from ktdesk_wizard.probe.machine_facts import MachineFacts

FILE = "measured.json"
NUM_SAMPLES = 5
DATE = "%Y-%m-%d %H:%M"
BYTES, TILES = "int8", "bf16 tiles"


@dataclass(frozen=True)
class Measurement:
    machine: str
    """What it depends on."""
    date: str
    """In UTC, to the minute."""
    read_bytes_s: float
    """All threads together."""
    byte_ops_s: float
    """Products of bytes on vectors."""
    tile_ops_s: float | None
    """Of bfloat16 on tiles; None where there are none."""
    kernel_shares: tuple[KernelShare, ...] = ()
    """Of byte_ops_s."""


def machine_key(facts: MachineFacts) -> str:
    cpu = facts.cpu
    parts = (cpu.name.value, f"{cpu.num_threads.value} threads", cpu.isa.value, f"ktdesk {metadata.version('ktdesk')}")
    return ", ".join(map(str, parts))


def measure(facts: MachineFacts) -> Measurement:
    """On all threads that the engine takes. Takes about ten seconds, and a quarter of the free memory at the most."""
    places = thread_places()
    pool = kernels.worker_pool(len(places), places=places)
    names = [BYTES, *([TILES] if pool.isa == "amx" else [])]
    probes = Probes(pool, names)
    measurement = measurement_of(facts, probes.measure)
    return replace(measurement, kernel_shares=tuple(kernel_shares(pool, probes, BYTES)))


def measurement_of(facts: MachineFacts, sample: Callable[[], Ceilings]) -> Measurement:
    """The medians of some samples: the machine drifts."""
    samples = [sample() for _ in range(NUM_SAMPLES)]
    tiles = [ceilings.peak_ops_s[TILES] for ceilings in samples if TILES in ceilings.peak_ops_s]
    return Measurement(
        machine=machine_key(facts),
        date=datetime.now(timezone.utc).strftime(DATE),
        read_bytes_s=median(ceilings.read_bytes_s for ceilings in samples),
        byte_ops_s=median(ceilings.peak_ops_s[BYTES] for ceilings in samples),
        tile_ops_s=median(tiles) if tiles else None,
    )


def save_measurement(measurement: Measurement, folder: Path) -> None:
    """Whole or not at all."""
    part = folder / f"{FILE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(asdict(measurement), indent=2), encoding="utf-8")
        part.replace(folder / FILE)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HomeFolderError(f"{folder}: the measurement cannot be kept: {error.strerror or error}") from None


def with_measurement(facts: MachineFacts, folder: Path) -> MachineFacts:
    """The facts, with what was measured on this machine, if it was."""
    found = _load(folder)
    if found is None or found.machine != machine_key(facts):
        return facts
    source = f"ktdesk probe --measure, {found.date} UTC"
    amx = facts.cpu.amx
    tiles: Fact[float] = amx.measured if found.tile_ops_s is None else measured(found.tile_ops_s, source)
    shares = facts.cpu.kernel_shares if not found.kernel_shares else measured(found.kernel_shares, source)
    peak = measured(found.byte_ops_s, source)
    return replace(
        facts,
        cpu=replace(facts.cpu, peak_ops_s=peak, kernel_shares=shares, amx=replace(amx, measured=tiles)),
        memory=replace(facts.memory, read_bytes_s=measured(found.read_bytes_s, source)),
    )


def measured_at(facts: MachineFacts, folder: Path) -> datetime | None:
    """When this machine was measured; None where it was not."""
    found = _load(folder)
    if found is None or found.machine != machine_key(facts):
        return None
    try:
        return datetime.strptime(found.date, DATE).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def is_measured(facts: MachineFacts) -> bool:
    """All that `measure` measures."""
    return all(
        fact.confidence == "measured"
        for fact in (facts.memory.read_bytes_s, facts.cpu.peak_ops_s, facts.cpu.kernel_shares)
    )


def _load(folder: Path) -> Measurement | None:
    """None where there is none, or none that makes sense: it is only measured again."""
    try:
        values = json.loads((folder / FILE).read_text(encoding="utf-8"))
        shares = tuple(KernelShare(**share) for share in values.pop("kernel_shares", []))
        found = Measurement(**values, kernel_shares=shares)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    tiles = 1.0 if found.tile_ops_s is None else found.tile_ops_s
    numbers = (found.read_bytes_s, found.byte_ops_s, tiles, *(share.share for share in shares))
    return found if all(isinstance(number, float) and number > 0 for number in numbers) else None
