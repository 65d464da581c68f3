"""The arrays that kernels read and write, and where new ones lie."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.pools import WorkerPool

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]
Blocks = npt.NDArray[np.uint8]

CACHE_LINE = 64


def aligned_bytes(*shape: int) -> Blocks:
    """Bytes, not yet filled, that start at a cache line."""
    size = math.prod(shape)
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].reshape(shape)


def new_floats(pool: WorkerPool, *shape: int) -> Floats:
    """Not yet filled. Where a program is being recorded on the pool, in its memory."""
    memory = _kernels.take_where_recorded(pool, math.prod(shape) * np.float32().itemsize)
    return np.empty(shape, np.float32) if memory is None else memory.view(np.float32).reshape(shape)


def new_ids(pool: WorkerPool, *shape: int) -> Ids:
    """As `new_floats`."""
    memory = _kernels.take_where_recorded(pool, math.prod(shape) * np.int32().itemsize)
    return np.empty(shape, np.int32) if memory is None else memory.view(np.int32).reshape(shape)
