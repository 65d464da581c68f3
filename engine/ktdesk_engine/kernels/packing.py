"""From rows as the file has them to panels (csrc/panels.h), step by step, and a look at every block on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ktdesk_engine.kernels import _kernels
from ktdesk_engine.kernels.arrays import Blocks, panel_memory
from ktdesk_engine.kernels.pools import WorkerPool
from ktdesk_engine.kernels.weights import PackedShape, Weight
from ktdesk_engine.quants.formats import WeightType

PANEL_ROWS = 16
STEP_BYTES = 64 * 2**20
"""What is read between two words to the source: a moment's work, and far more than a call costs."""


class BadBlockError(ValueError):
    """A block's scale, or a single float, is NaN or infinite."""

    def __init__(self, address: int) -> None:
        self.address = address
        """Where in memory the block begins."""
        super().__init__("a weight is not a finite number")


class Source(NamedTuple):
    """Who is told what is read of weights, both times in rows (..., rows, row_bytes)."""

    will_read: Callable[[Blocks], None]
    """Soon: may fetch them meanwhile."""
    was_read: Callable[[Blocks], None]
    """They are not needed any more. May raise, to cancel."""


IN_MEMORY = Source(lambda rows: None, lambda rows: None)


def has_panels(weight: Weight) -> bool:
    """Whether rows of this type and length can be packed."""
    return _kernels.panel_bytes(int(weight.type), weight.row_length) > 0


def packed_bytes(weight: Weight) -> int:
    """What the weight takes in panels; 0 where it has none."""
    return panels_bytes(weight.type, math.prod(weight.blocks.shape[:-2]), weight.num_rows, weight.row_length)


def panels_bytes(weight_type: WeightType, num_matrices: int, num_rows: int, row_length: int) -> int:
    """As `packed_bytes`, for weights of which only the shape is known."""
    return num_matrices * _num_panels(num_rows) * _kernels.panel_bytes(int(weight_type), row_length)


def pack(pool: WorkerPool, weight: Weight, source: Source = IN_MEMORY) -> Weight:
    """The same weights in panels, their values unchanged. `has_panels` holds.

    BadBlockError, before the next step, where a scale is no finite number.
    """
    panel_bytes = _kernels.panel_bytes(int(weight.type), weight.row_length)
    panels = panel_memory(pool.num_groups, *weight.blocks.shape[:-2], _num_panels(weight.num_rows), panel_bytes)
    stacked = panels.reshape(-1, *panels.shape[-2:])
    for matrices, rows, blocks in _read_steps(weight.blocks, source, pool.num_groups):
        some = slice(rows.start // PANEL_ROWS, _num_panels(rows.stop))
        _refuse(_kernels.pack(pool, int(weight.type), blocks, stacked[matrices, some]), blocks)
    return Weight(weight.type, panels, PackedShape(weight.num_rows, weight.row_length))


def check(pool: WorkerPool, weight: Weight, source: Source = IN_MEMORY) -> None:
    """Only looks for scales that are no finite numbers, as `pack` does."""
    for _, _, blocks in _read_steps(weight.blocks, source, pool.num_groups):
        _refuse(_kernels.check(pool, int(weight.type), blocks), blocks)


def _refuse(bad_place: int, blocks: Blocks) -> None:
    if bad_place >= 0:
        raise BadBlockError(blocks.ctypes.data + bad_place)


def _num_panels(num_rows: int) -> int:
    return -(-num_rows // PANEL_ROWS)


def _read_steps(blocks: Blocks, source: Source, num_groups: int) -> Iterator[tuple[slice, slice, Blocks]]:
    """As `_steps`; tells the source, a step ahead."""
    steps = list(_steps(blocks, num_groups))
    source.will_read(steps[0][2])
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if following is not None:
            source.will_read(following[2])
        yield step
        source.was_read(step[2])


def _steps(blocks: Blocks, num_groups: int) -> Iterator[tuple[slice, slice, Blocks]]:
    """(matrices, rows, blocks[matrices, rows]): several matrices of a stack, or some rows of a large one.

    With several groups of threads no matrix is divided: a group packs its share of each.
    """
    stack = blocks.reshape(1, *blocks.shape) if blocks.ndim == 2 else blocks
    num_matrices, num_rows, row_bytes = stack.shape
    matrix_step = max(1, STEP_BYTES // (num_rows * row_bytes))
    row_step = (
        max(1, STEP_BYTES // (PANEL_ROWS * row_bytes)) * PANEL_ROWS
        if matrix_step == 1 and num_groups == 1
        else num_rows
    )
    for first in range(0, num_matrices, matrix_step):
        for row in range(0, num_rows, row_step):
            matrices, rows = slice(first, first + matrix_step), slice(row, min(row + row_step, num_rows))
            yield matrices, rows, stack[matrices, rows]
