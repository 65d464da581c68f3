"""The arrays that kernels read and write, and where new ones lie."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.large_arrays import (
    HUGE_PAGE_BYTES,
    MIN_BYTES,
    LargeArrays,
    from_huge_page,
    huge_memory,
)
from ktdesk_engine.kernels.pools import WorkerPool

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]
Blocks = npt.NDArray[np.uint8]

CACHE_LINE = 64

_large_arrays = LargeArrays()


def aligned_bytes(*shape: int) -> Blocks:
    """Bytes, not yet filled, that start at a cache line."""
    size = math.prod(shape)
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].reshape(shape)


def new_floats(pool: WorkerPool, *shape: int) -> Floats:
    """Not yet filled. Where a program is being recorded on the pool, in its memory."""
    num_bytes = math.prod(shape) * np.float32().itemsize
    memory = _kernels.take_where_recorded(pool, num_bytes)
    if memory is None and num_bytes >= MIN_BYTES:
        memory = _large_arrays.take(num_bytes)
    return np.empty(shape, np.float32) if memory is None else memory.view(np.float32).reshape(shape)


def new_ids(pool: WorkerPool, *shape: int) -> Ids:
    """As `new_floats`."""
    memory = _kernels.take_where_recorded(pool, math.prod(shape) * np.int32().itemsize)
    return np.empty(shape, np.int32) if memory is None else memory.view(np.int32).reshape(shape)


def panel_memory(num_groups: int, *shape: int) -> Blocks:
    """Bytes for panels (..., panels, panel_bytes), of which no page is touched yet: who writes it first gives it
    the memory of its own NUMA node.

    num_groups: each writes and later reads a slice of the panels of every matrix.
    """
    size = math.prod(shape)
    if size < HUGE_PAGE_BYTES:
        return aligned_bytes(*shape)
    memory = huge_memory(size, huge_pages=_fits_huge_pages(shape[-2] * shape[-1], num_groups))
    return from_huge_page(np.frombuffer(memory, np.uint8), size).reshape(shape)


def _fits_huge_pages(matrix_bytes: int, num_groups: int) -> bool:
    """On several nodes a huge page with slices of two of them lies on the wrong node for one: with four to a slice,
    at most a quarter does."""
    return num_groups == 1 or matrix_bytes // num_groups >= 4 * HUGE_PAGE_BYTES
