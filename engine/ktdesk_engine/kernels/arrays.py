"""The arrays that kernels read and write."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Blocks = npt.NDArray[np.uint8]

CACHE_LINE = 64


def aligned_bytes(*shape: int) -> Blocks:
    """Bytes, not yet filled, that start at a cache line."""
    size = math.prod(shape)
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].reshape(shape)
