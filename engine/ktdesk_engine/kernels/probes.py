"""What the machine can do at best, with the threads and the instruction set of a pool."""

from __future__ import annotations

from typing import NamedTuple

from ktdesk_engine.kernels import Blocks, WorkerPool, _kernels


class Probe(NamedTuple):
    """One measurement."""

    seconds: float
    amount: float
    """Bytes that were read, or multiplications and additions."""
    checksum: float
    """Depends on all that was read or computed, so that nothing of it can be left out."""

    @property
    def rate(self) -> float:
        """A second."""
        return self.amount / self.seconds


def touch(pool: WorkerPool, data: Blocks) -> None:
    """Writes to every page of data (n,), so that it is memory of its own."""
    _kernels.touch(pool, data)


def probe_read(pool: WorkerPool, data: Blocks) -> Probe:
    """All threads read data (n,), n a multiple of 256, once."""
    return Probe(*_kernels.probe_read(pool, data))


def probe_peak(pool: WorkerPool, name: str, num_rounds: int) -> Probe:
    """All threads multiply and add in registers.

    name: `int8` is the instruction set's own products of bytes, `float32` its fused multiply-add.
    """
    return Probe(*_kernels.probe_peak(pool, name, num_rounds))
