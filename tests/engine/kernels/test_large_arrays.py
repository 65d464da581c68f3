from __future__ import annotations

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.kernels.arrays import new_floats
from ktdesk_engine.kernels.large_arrays import HUGE_PAGE_BYTES, LargeArrays


def test_memory_of_an_array_that_is_gone_is_given_out_again() -> None:
    arrays = LargeArrays()
    first = arrays.take(HUGE_PAGE_BYTES + 1)
    address = first.ctypes.data
    assert address % HUGE_PAGE_BYTES == 0
    assert first.shape == (HUGE_PAGE_BYTES + 1,)
    del first
    assert arrays.kept_bytes == 2 * HUGE_PAGE_BYTES
    assert arrays.take(2 * HUGE_PAGE_BYTES).ctypes.data == address
    assert arrays.kept_bytes == 2 * HUGE_PAGE_BYTES  # what was given out ended at once


def test_a_view_keeps_the_memory() -> None:
    arrays = LargeArrays()
    row = arrays.take(HUGE_PAGE_BYTES).view(np.float32).reshape(4, -1)[2]
    row[:] = 7
    other = arrays.take(HUGE_PAGE_BYTES)
    other[:] = 0
    assert arrays.kept_bytes == 0
    assert (row == 7).all()


def test_no_more_is_kept_than_allowed() -> None:
    arrays = LargeArrays(max_kept_bytes=HUGE_PAGE_BYTES)
    held = [arrays.take(HUGE_PAGE_BYTES) for _ in range(3)]
    held.clear()
    assert arrays.kept_bytes == HUGE_PAGE_BYTES


def test_the_result_of_a_large_operation_starts_at_a_huge_page() -> None:
    pool = kernels.worker_pool(1)
    assert new_floats(pool, 512, 1024).ctypes.data % HUGE_PAGE_BYTES == 0
