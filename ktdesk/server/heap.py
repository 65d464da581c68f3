"""The C library's allocator, told to keep one heap.

Without that each thread has a heap of its own, and what is free in one is of no use to the others. Under clients that
come and go the memory of a server then grows for very long, though it has no more of it in use.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

M_ARENA_MAX = -8
"""Of glibc's malloc.h."""
VARIABLE = "MALLOC_ARENA_MAX"


def keep_one_heap() -> None:
    """Before threads begin. Nothing where the environment says otherwise, or the C library knows no such thing."""
    if VARIABLE not in os.environ:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
