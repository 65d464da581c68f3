"""Where memory for weights comes from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine.kernels.arrays import CACHE_LINE, HUGE_PAGE_BYTES, Blocks, panel_memory

MB = 1 << 20


def flags_of(data: Blocks) -> set[str]:
    """What the system notes of the mapping that holds the data."""
    address, flags = data.ctypes.data, set()
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", block):
            begin, end = (int(bound, 16) for bound in bounds.groups())
            if begin <= address < end and (noted := re.search(r"VmFlags: (.*)", block)):
                flags |= set(noted[1].split())
    return flags


@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 320), (2, 48, 27648), (1, 1, 5 * MB)])
@pytest.mark.parametrize("num_groups", [1, 2])
def test_memory_for_panels_can_be_written_from_end_to_end(shape: tuple[int, ...], num_groups: int) -> None:
    data = panel_memory(num_groups, *shape)
    data[...] = 7
    assert data.shape == shape
    assert data.dtype == np.uint8
    assert data.flags.c_contiguous
    assert data.ctypes.data % CACHE_LINE == 0
    assert (data == 7).all()


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no transparent huge pages"
)
@pytest.mark.parametrize(
    ("num_groups", "matrix_bytes", "flag"), [(1, MB, "hg"), (2, MB, "nh"), (2, 16 * MB, "hg"), (2, 15 * MB, "nh")]
)
def test_huge_pages_are_asked_for_unless_one_would_hold_slices_of_two_nodes(
    num_groups: int, matrix_bytes: int, flag: str
) -> None:
    data = panel_memory(num_groups, 4, 16, matrix_bytes // 16)
    assert data.ctypes.data % HUGE_PAGE_BYTES == 0
    assert flag in flags_of(data)


def test_more_than_there_is_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="memory for weights"):
        panel_memory(1, 1 << 20, 1 << 20, 1 << 20)
