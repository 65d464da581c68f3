"""Memory of the host, as a cache of keys and values lies in it."""

from __future__ import annotations

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.kernels import Blocks


class HostMemory:
    """Bytes that are where they are needed."""

    def cache_memory(self, *shape: int) -> Blocks:
        """Not yet touched."""
        return kernels.aligned_bytes(*shape)

    def read_memory(self, memory: Blocks) -> Blocks:
        """A copy, (bytes,)."""
        return np.array(memory).reshape(-1)

    def write_memory(self, memory: Blocks, content: Blocks) -> None:
        """content: as many bytes."""
        memory[...] = content.reshape(memory.shape)
