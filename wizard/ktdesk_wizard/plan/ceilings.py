"""What a machine can do at best, as far as a plan needs it: measured, or from what is printed on its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ktdesk_engine.benchmark.kernel_shares import ATTENTION, KernelShare
from ktdesk_engine.config import Compute
from ktdesk_wizard.probe.machine_facts import MachineFacts, ThreadRead

DEFAULT_SHARES = {"avx512": (0.15, 0.32), "avx2": (0.18, 0.40), "scalar": (0.3, 0.9)}
"""Of the peak of the arithmetic, what the kernels reach in prefill, where that was not measured."""
ATTENTION_SHARES = {"avx512": (0.06, 0.15), "avx2": (0.06, 0.25), "scalar": (0.2, 0.9)}
"""Of the same peak, in attention, whose products are in float32."""
TILE_SHARE, BFLOAT16_SHARE, TILE_ATTENTION_SHARE = (0.55, 1.40), (0.9, 2.5), (0.08, 0.30)
"""Of the same peak of vectors, on tiles with 128 rows, where that was not measured: as mixed and as bf16 compute."""
FLOAT_SHARE = (0.07, 0.18)
"""Of the same peak, in prefill in float32, of weights that are unpacked as they are used."""
MEASURED_SHARE = (0.70, 1.0)
"""Of what a kernel does alone, in a model: other shapes, other neighbours in the caches, and threads that wait for each
other after every operation."""
OPS_PER_CYCLE = {"avx512": 224.0, "avx512 without VNNI": 110.0, "avx2": 105.0, "scalar": 10.0}
"""A core, two a product, on vectors: measured on one processor, at its base clock."""
LOOKED_UP = (0.6, 1.2)
"""How far a looked-up peak may be off: clocks under load, ports that differ."""
NOMINAL_SHARE = (0.60, 0.90)
"""Of the nominal bandwidth of the modules, what all cores together can read."""


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    def times(self, share: tuple[float, float]) -> Range:
        return Range(self.low * share[0], self.high * share[1])

    def seconds(self, amount: float) -> tuple[float, float]:
        """At best and at worst, at so much a second."""
        return amount / self.high, amount / self.low


@dataclass(frozen=True)
class Ceilings:
    """Of a machine, for a plan."""

    read_bytes_s: Range | None
    peak_ops_s: Range | None
    """Of products of bytes on vectors."""
    isa: str
    """Of the vectors."""
    kernel_shares: tuple[KernelShare, ...]
    """Of the peak; none: not measured."""
    basis: str
    tiles_by_vectors: float | None = None
    """The peak that shares on tiles are of, by that of vectors; None: tiles were not measured."""

    def share(self, kind: str, type_name: str, compute: Compute = "int8") -> tuple[float, float]:
        """Of the peak, for a kernel on weights of this type: as measured, else as others of its kind, else usual."""
        on_tiles = compute in ("mixed", "bf16")
        if compute == "bf16" and kind != ATTENTION:
            return BFLOAT16_SHARE
        if compute == "float32" and kind != ATTENTION:
            return FLOAT_SHARE
        of_kind = {s.type: s.share for s in self.kernel_shares if s.kind == kind and s.on_tiles == on_tiles}
        if on_tiles and (not of_kind or self.tiles_by_vectors is None):
            return TILE_ATTENTION_SHARE if kind == ATTENTION else TILE_SHARE
        if not of_kind:
            return (ATTENTION_SHARES if kind == ATTENTION else DEFAULT_SHARES)[self.isa]
        usual = sum(of_kind.values()) / len(of_kind)
        share = of_kind.get(type_name, usual) * ((self.tiles_by_vectors or 1.0) if on_tiles else 1.0)
        return share * MEASURED_SHARE[0], share * MEASURED_SHARE[1]


def ceilings_of(facts: MachineFacts, num_threads: int) -> Ceilings:
    """Measured where they were measured, else from what is printed on the parts, else unknown."""
    read, read_basis = _read(facts, num_threads)
    isa = _vector_isa(facts)
    peak, peak_basis = _peak(facts, isa, num_threads)
    shares = facts.cpu.kernel_shares.value or ()
    basis = f"bandwidth {read_basis}, arithmetic {peak_basis}"
    return Ceilings(read, peak, isa, shares, basis, _tiles_by_vectors(facts))


def _tiles_by_vectors(facts: MachineFacts) -> float | None:
    """Vectors unpack for tiles: the speed of a kernel follows the geometric mean of both peaks."""
    tiles, vectors = facts.cpu.amx.measured.value, facts.cpu.peak_ops_s.value
    return math.sqrt(tiles / vectors) if tiles and vectors else None


def _read(facts: MachineFacts, num_threads: int) -> tuple[Range | None, str]:
    memory = facts.memory
    if memory.read_bytes_s.value:
        read = memory.read_bytes_s.value * _read_share(memory.reads_by_threads.value or (), num_threads)
        return Range(read, read), memory.read_bytes_s.confidence
    if memory.nominal_bytes_s.value:
        nominal = Range(memory.nominal_bytes_s.value, memory.nominal_bytes_s.value)
        return nominal.times(NOMINAL_SHARE), "looked up (modules)"
    of_nodes = [node.read_bytes_s.value for node in facts.numa.nodes if node.num_cores]
    known = [speed for speed in of_nodes if speed]
    if known and len(known) == len(of_nodes):
        return Range(sum(known), sum(known)).times(NOMINAL_SHARE), "looked up (firmware)"
    return None, "unknown"


def _read_share(reads: tuple[ThreadRead, ...], num_threads: int) -> float:
    """Of what all threads read: that of the next larger number of them that was measured; all, where none was."""
    if not reads:
        return 1.0
    enough = [read.bytes_s for read in reads if read.num_threads >= num_threads]
    return min(min(enough, default=reads[-1].bytes_s) / reads[-1].bytes_s, 1.0)


def _vector_isa(facts: MachineFacts) -> str:
    """Tiles are held against the peak of vectors, too."""
    isa = facts.cpu.isa.value or "scalar"
    return "avx512" if isa == "amx" else isa


def _peak(facts: MachineFacts, isa: str, num_threads: int) -> tuple[Range | None, str]:
    cpu = facts.cpu
    if cpu.peak_ops_s.value:
        peak = cpu.peak_ops_s.value * min(num_threads / (cpu.num_threads.value or num_threads), 1.0)
        return Range(peak, peak), cpu.peak_ops_s.confidence
    if not cpu.max_hz.value or not cpu.isa.value:
        return None, "unknown"
    if isa == "avx512" and "avx512_vnni" not in (cpu.flags.value or ()):
        isa = "avx512 without VNNI"
    ops = OPS_PER_CYCLE[isa] * cpu.max_hz.value * num_threads
    return Range(ops, ops).times(LOOKED_UP), "looked up (instruction set, clock)"
