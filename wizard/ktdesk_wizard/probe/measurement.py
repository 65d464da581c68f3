"""What the machine does at best, measured with the engine's own kernels, and kept for the next plan.

A measurement is of one processor, number of threads, instruction set and version of ktdesk: another makes it void.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TypeVar

from ktdesk_engine import kernels
from ktdesk_engine.benchmark.ceilings import Ceilings, Probes
from ktdesk_engine.benchmark.conditions import LoadMeter
from ktdesk_engine.benchmark.kernel_shares import KernelShare, kernel_shares, num_shares
from ktdesk_engine.benchmark.model import PLANNED_PEAK, TILE_PEAK
from ktdesk_engine.benchmark.time_limit import Clock, TimeLimit
from ktdesk_engine.machine import thread_places
from ktdesk_wizard.errors import HomeFolderError
from ktdesk_wizard.probe.bandwidths import rate_of_card, reads_by_nodes, reads_by_threads
from ktdesk_wizard.probe.fact import Fact, measured
from ktdesk_wizard.probe.machine_facts import LinkRate, MachineFacts, NodeRead, ThreadRead

T = TypeVar("T")
FILE = "measured.json"
ROOM_BYTES = 16 << 10
"""More than a measurement takes on the disk."""
NUM_SAMPLES = 5
MAX_SECONDS = 45.0
"""After which nothing more is begun. What is being measured then ends before a minute is over."""
PARTS_BY_SAMPLES = 8
"""The samples may take this part of the time."""
BUSY_SHARE = 0.1
"""Of the cores that are computed on: others may take so much without a word."""
MUCH_HIGHER = 1.25
"""What a machine does more than was measured of it, by which that was wrong, and did not only drift."""
DATE = "%Y-%m-%d %H:%M"


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
    byte_tile_ops_s: float | None
    """Of bytes on tiles; None where there are none."""
    kernel_shares: tuple[KernelShare, ...] = ()
    """Of byte_ops_s; on tiles, of the geometric mean of it and byte_tile_ops_s."""
    busy_cores: float = 0.0
    """That other processes and the hypervisor took meanwhile, on average."""
    turns_share: float = 1.0
    """Of the turns that are usual, those that there was time for. Where others computed too, there are fewer."""
    reads_by_threads: tuple[ThreadRead, ...] = ()
    reads_by_nodes: tuple[NodeRead, ...] = ()
    """None where there is one node."""
    copies: LinkRate | None = None
    """None where there is no card, or no torch."""


def machine_key(facts: MachineFacts) -> str:
    cpu = facts.cpu
    parts = (cpu.name.value, f"{cpu.num_threads.value} threads", cpu.isa.value, f"ktdesk {metadata.version('ktdesk')}")
    return ", ".join(map(str, parts))


def measure(
    facts: MachineFacts,
    check: Callable[[str], None] = lambda stage: None,
    advance: Callable[[float], None] = lambda share: None,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """On all threads that the engine takes. Takes about half a minute, and less than a whole one however busy the
    machine is; a quarter of the free memory at the most.

    check: called about once a second, with what is measured just now. May raise, to stop. advance: called with it,
    with the share that is done.
    """
    limit, meter = TimeLimit(MAX_SECONDS, clock), LoadMeter()
    places = thread_places()
    pool = kernels.worker_pool(len(places), places=places)
    probes = Probes(pool, [PLANNED_PEAK, *([TILE_PEAK] if pool.has_tiles else [])])
    node_ids = [node.id for node in facts.numa.nodes if node.num_cores]
    steps = _Steps(check, advance, NUM_SAMPLES + len(places).bit_length() + num_shares(pool) + len(node_ids) ** 2)

    def sample() -> Ceilings:
        steps.take("memory and arithmetic")
        return probes.measure()

    measurement = measurement_of(facts, sample, limit.turns(NUM_SAMPLES, PARTS_BY_SAMPLES))
    by_threads = tuple(steps.of(reads_by_threads(places), "memory, by number of threads"))
    shares = tuple(steps.of(kernel_shares(pool, probes, PLANNED_PEAK, TILE_PEAK, limit), "each type of weights"))
    by_nodes = () if limit.is_over else tuple(steps.of(reads_by_nodes(places, node_ids), "memory, from node to node"))
    return replace(
        measurement,
        kernel_shares=shares,
        reads_by_threads=by_threads,
        reads_by_nodes=by_nodes,
        copies=None if limit.is_over else rate_of_card(pool),
        busy_cores=meter.read().taken_cores,
        turns_share=limit.share,
    )


class _Steps:
    """Counts what is measured, and lets whoever watches stop it."""

    def __init__(self, check: Callable[[str], None], advance: Callable[[float], None], total: int) -> None:
        self._check, self._advance, self._total = check, advance, total
        self._done = 0

    def take(self, stage: str) -> None:
        self._check(stage)
        self._done += 1
        self._advance(min(self._done / self._total, 1.0))

    def of(self, items: Iterable[T], stage: str) -> Iterator[T]:
        self._check(stage)
        for item in items:
            self.take(stage)
            yield item


def measurement_of(
    facts: MachineFacts, sample: Callable[[], Ceilings], turns: Iterable[int] = range(NUM_SAMPLES)
) -> Measurement:
    """The medians of some samples: the machine drifts."""
    samples = [sample() for _ in turns]
    tiles = [ceilings.peak_ops_s[TILE_PEAK] for ceilings in samples if TILE_PEAK in ceilings.peak_ops_s]
    return Measurement(
        machine=machine_key(facts),
        date=datetime.now(timezone.utc).strftime(DATE),
        read_bytes_s=median(ceilings.read_bytes_s for ceilings in samples),
        byte_ops_s=median(ceilings.peak_ops_s[PLANNED_PEAK] for ceilings in samples),
        byte_tile_ops_s=median(tiles) if tiles else None,
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


def check_can_be_kept(folder: Path) -> None:
    """Before anybody waits for a measurement. HomeFolderError where the folder cannot be written, or its disk is
    full: an empty file could be made there."""
    part = folder / f"{FILE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(bytes(ROOM_BYTES))
        part.unlink()
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HomeFolderError(f"{folder}: a measurement cannot be kept: {error.strerror or error}") from None


def with_measurement(facts: MachineFacts, folder: Path) -> MachineFacts:
    """The facts, with what was measured on this machine, if it was."""
    found = _load(folder)
    if found is None or found.machine != machine_key(facts):
        return facts
    hurried = f", {found.turns_share:.0%} of the usual turns" if found.turns_share < 1 else ""
    source = f"ktdesk probe --measure, {found.date} UTC{hurried}"
    amx = facts.cpu.amx
    tiles: Fact[float] = amx.measured if found.byte_tile_ops_s is None else measured(found.byte_tile_ops_s, source)
    shares = facts.cpu.kernel_shares if not found.kernel_shares else measured(found.kernel_shares, source)
    peak, busy = measured(found.byte_ops_s, source), measured(found.busy_cores, source)
    turns = measured(found.turns_share, source)
    return replace(
        facts,
        cpu=replace(
            facts.cpu,
            peak_ops_s=peak,
            kernel_shares=shares,
            busy_cores=busy,
            turns_share=turns,
            amx=replace(amx, measured=tiles),
        ),
        memory=replace(
            facts.memory,
            read_bytes_s=measured(found.read_bytes_s, source),
            reads_by_threads=_measured_if(found.reads_by_threads, facts.memory.reads_by_threads, source),
        ),
        numa=replace(facts.numa, reads=_measured_if(found.reads_by_nodes, facts.numa.reads, source)),
        gpus=replace(facts.gpus, copies=_measured_if(found.copies, facts.gpus.copies, source)),
    )


def _measured_if(value: T | None, before: Fact[T], source: str) -> Fact[T]:
    return measured(value, source) if value else before


def was_busy(facts: MachineFacts) -> bool:
    """Whether others kept the machine busy while it was measured, so that it may do much more."""
    cores, num_threads = facts.cpu.busy_cores.value, facts.cpu.num_threads.value
    return cores is not None and cores > BUSY_SHARE * (num_threads or 1)


def was_hurried(facts: MachineFacts) -> bool:
    """Whether there was not time for all turns of its measurement."""
    share = facts.cpu.turns_share.value
    return share is not None and share < 1


def busy_note(facts: MachineFacts) -> str | None:
    """Why speeds may be off, and what to do, where others computed while the machine was measured, or it took long."""
    cpu, hurried = facts.cpu, ""
    if was_hurried(facts):
        hurried = f"with {cpu.turns_share.value:.0%} of the usual turns, for more would have taken too long"
    again = "`ktdesk probe --measure` measures again"
    if was_busy(facts):
        also = f", and {hurried}" if hurried else ""
        busy = f"while other processes used {cpu.busy_cores.value:.1f} cores{also}"
        return f"this machine was measured {busy}, so speeds may come out too low: {again}"
    return f"this machine was measured {hurried}, so speeds are less certain: {again}" if hurried else None


def raise_ceilings(facts: MachineFacts, folder: Path, read_bytes_s: float, byte_ops_s: float) -> str | None:
    """Keeps what a run saw beside its samples in the place of what was measured of this machine, where that is much
    more, and says so. facts: without measurements, or with them."""
    found = _load(folder)
    if found is None or found.machine != machine_key(facts):
        return None
    higher = replace(
        found, read_bytes_s=max(found.read_bytes_s, read_bytes_s), byte_ops_s=max(found.byte_ops_s, byte_ops_s)
    )
    gain = max(higher.read_bytes_s / found.read_bytes_s, higher.byte_ops_s / found.byte_ops_s)
    if gain < MUCH_HIGHER:
        return None
    save_measurement(replace(higher, date=datetime.now(timezone.utc).strftime(DATE)), folder)
    return (
        f"this machine now does {gain:.1f} times what was measured on {found.date} UTC: {_ceilings(higher)} now, "
        f"{_ceilings(found)} then; plans count with the new figures, and `ktdesk probe --measure` measures all again"
    )


def _ceilings(found: Measurement) -> str:
    return f"{found.read_bytes_s / 1e9:.1f} GB/s and {found.byte_ops_s / 1e12:.2f} T a second"


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
        threads = tuple(ThreadRead(**read) for read in values.pop("reads_by_threads", []))
        nodes = tuple(NodeRead(**read) for read in values.pop("reads_by_nodes", []))
        copies = values.pop("copies", None)
        found = Measurement(
            **values,
            kernel_shares=shares,
            reads_by_threads=threads,
            reads_by_nodes=nodes,
            copies=None if copies is None else LinkRate(**copies),
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    tiles = 1.0 if found.byte_tile_ops_s is None else found.byte_tile_ops_s
    if not isinstance(found.busy_cores, float) or not isinstance(found.turns_share, float):
        return None
    rates = [*(read.bytes_s for read in threads), *(read.bytes_s for read in nodes)]
    if found.copies is not None:
        rates += [found.copies.up_bytes_s, found.copies.down_bytes_s]
    numbers = (found.read_bytes_s, found.byte_ops_s, tiles, *(share.share for share in shares), *rates)
    return found if all(isinstance(number, float) and number > 0 for number in numbers) else None
