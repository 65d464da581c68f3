"""The ceilings of a measurement: read bandwidth and peak of the arithmetic, by the engine's own probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ktdesk_engine.benchmark.conditions import l3_bytes
from ktdesk_engine.kernels import WorkerPool
from ktdesk_engine.kernels.large_arrays import HUGE_PAGE_BYTES, from_huge_page, huge_memory
from ktdesk_engine.kernels.probes import probe_peak, probe_read, touch
from ktdesk_engine.machine import available_memory_bytes

PEAK_SECONDS = 0.01
LOOKS = 5
"""Of each kind, in turns; the median counts. One long look would be wrong wherever something else runs for a moment."""
MIN_BUFFER_BYTES = 512 << 20
"""A pass over all of it takes tens of milliseconds."""
CACHES_PER_BUFFER = 4
MEMORY_SHARE = 4
MAX_ROUNDS = 1 << 36


@dataclass(frozen=True)
class Ceilings:
    """What the machine can do at one moment."""

    read_bytes_s: float
    peak_ops_s: dict[str, float]
    """By what is multiplied. A multiplication and an addition are two operations."""

    def midway(self, other: Ceilings) -> Ceilings:
        """Between two moments."""
        peaks = {name: (ops + other.peak_ops_s[name]) / 2 for name, ops in self.peak_ops_s.items()}
        return Ceilings((self.read_bytes_s + other.read_bytes_s) / 2, peaks)


class Probes:
    """Measures the ceilings again and again with the same buffer. Another peak of the pool's is one more name."""

    def __init__(self, pool: WorkerPool, peaks: Sequence[str], buffer_bytes: int | None = None) -> None:
        """buffer_bytes: decided by caches and memory if None."""
        self.pool = pool
        num_bytes = buffer_bytes or decide_buffer_bytes(l3_bytes(), available_memory_bytes())
        self._buffer = from_huge_page(np.frombuffer(huge_memory(num_bytes), np.uint8), num_bytes)
        touch(pool, self._buffer)
        part_bytes = max(num_bytes // LOOKS // HUGE_PAGE_BYTES, 1) * HUGE_PAGE_BYTES
        begins = [look * part_bytes % num_bytes for look in range(LOOKS)]
        self._parts = [self._buffer[begin : begin + part_bytes] for begin in begins]
        self._rounds = {name: self._enough_rounds(name) for name in peaks}

    def measure(self) -> Ceilings:
        reads, peaks = [], dict[str, list[float]]()
        for part in self._parts:
            reads.append(probe_read(self.pool, part).rate)
            for name in self._rounds:
                peaks.setdefault(name, []).append(self.measure_peak(name))
        return Ceilings(median(reads), {name: median(rates) for name, rates in peaks.items()})

    def read_by(self, pool: WorkerPool) -> float:
        """Bytes a second that another pool reads of the buffer, which lies where this one's threads are."""
        return median(probe_read(pool, part).rate for part in self._parts)

    def measure_peak(self, name: str) -> float:
        """One look at one of the peaks alone: operations a second."""
        return probe_peak(self.pool, name, self._rounds[name]).rate

    def _enough_rounds(self, name: str) -> int:
        """So many that one probe takes about PEAK_SECONDS."""
        rounds = 1024
        while rounds < MAX_ROUNDS:
            seconds = probe_peak(self.pool, name, rounds).seconds
            if seconds >= PEAK_SECONDS / 4:
                return min(int(rounds * PEAK_SECONDS / seconds) + 1, MAX_ROUNDS)
            rounds *= 4
        return MAX_ROUNDS


def decide_buffer_bytes(cache_bytes: int, available_bytes: int) -> int:
    """Far more than the caches hold, but never more than a part of the memory: a reported cache may be fiction."""
    wanted = max(CACHES_PER_BUFFER * cache_bytes, MIN_BUFFER_BYTES)
    return max(min(wanted, available_bytes // MEMORY_SHARE) // HUGE_PAGE_BYTES, 1) * HUGE_PAGE_BYTES
