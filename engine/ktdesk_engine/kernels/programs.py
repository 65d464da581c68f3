"""Operations that are recorded once and replayed over the same memory, without Python between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Ids
from ktdesk_engine.kernels.pools import WorkerPool


class Program:
    """While it records, operations compute as always, and it takes them up with all that they read and write.

    What changes from one replay to the next goes through `ids`. An operation that has an array from elsewhere,
    which numpy made, is a RuntimeError: in a replay it would still have the numbers of the recording.
    """

    computes_while_recording = True

    def __init__(self, pool: WorkerPool) -> None:
        self._native = _kernels.Program(pool)

    def ids(self, *shape: int) -> Ids:
        """Zeros, to be overwritten before each run."""
        ids = self._native.take(math.prod(shape) * np.int32().itemsize).view(np.int32).reshape(shape)
        ids[:] = 0
        return ids

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Once, on one thread. Arrays that the block lets go of are overwritten by later operations."""
        self._native.begin()
        try:
            yield
        finally:
            self._native.end()

    def replay(self) -> None:
        """All operations again. What one of them raises ends it."""
        self._native.replay()

    @property
    def num_steps(self) -> int:
        """Operations that were recorded."""
        return self._native.num_steps

    @property
    def num_bytes(self) -> int:
        """Of the memory that they read and write, but for weights and cache."""
        return self._native.num_bytes
