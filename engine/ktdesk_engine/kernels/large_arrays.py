"""Large arrays whose memory is used again.

A batch's arrays are megabytes, live for one operation or two, and would be memory fresh from the system each time:
thousands of pages to clear, and as many for the processor to look up. Here they lie in huge pages and are kept.
"""

from __future__ import annotations

import mmap
import weakref
from collections import defaultdict
from contextlib import suppress

import numpy as np
import numpy.typing as npt

HUGE_PAGE_BYTES = 2 << 20
MIN_BYTES = HUGE_PAGE_BYTES // 2
"""Of an array that is worth it."""
MAX_KEPT_BYTES = 256 << 20

Memory = npt.NDArray[np.uint8]


class LargeArrays:
    """Gives out memory, and takes it back when the last array over it is gone."""

    def __init__(self, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: defaultdict[int, list[mmap.mmap]] = defaultdict(list)
        self.kept_bytes = 0
        """Of memory that nobody has now."""

    def take(self, num_bytes: int) -> Memory:
        """(num_bytes,), not filled, at a huge page."""
        size = -(-num_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        kept = self._kept[size]
        try:
            memory = kept.pop()  # one step: arrays end on any thread
            self.kept_bytes -= size
        except IndexError:
            memory = huge_memory(size)
        array = np.frombuffer(memory, np.uint8)
        weakref.finalize(array, self._give_back, memory, size).atexit = False
        return from_huge_page(array, num_bytes)

    def _give_back(self, memory: mmap.mmap, size: int) -> None:
        if self.kept_bytes + size <= self._max_kept_bytes:
            self.kept_bytes += size
            self._kept[size].append(memory)


def huge_memory(num_bytes: int, *, huge_pages: bool = True) -> mmap.mmap:
    """Of which no page is touched yet, with room to begin at a huge page. MemoryError where there is none."""
    try:
        memory = mmap.mmap(-1, num_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{num_bytes} bytes of memory for weights or activations: {error}") from None
    with suppress(OSError):  # advice; a system without huge pages takes none
        memory.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
    return memory


def from_huge_page(data: Memory, num_bytes: int) -> Memory:
    """Those bytes of `huge_memory` that begin at a huge page."""
    start = -data.ctypes.data % HUGE_PAGE_BYTES
    return data[start : start + num_bytes]
