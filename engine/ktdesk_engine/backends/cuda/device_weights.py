"""Matrices on a device: re-laid quantized ones, or plain floats, in memory that a caller may give."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import torch

from ktdesk_engine.backends.cuda.failures import as_engine_error
from ktdesk_engine.backends.cuda.forms import FORMS, Form, Parts, empty_parts, plain_type
from ktdesk_engine.errors import AcceleratorMemoryError
from ktdesk_engine.kernels.arrays import Blocks
from ktdesk_engine.quants.formats import BLOCKS, WeightType, dequantize

log = logging.getLogger("ktdesk.engine")

BYTES_AT_ONCE = 32 << 20
"""Copied and re-laid in one go."""
ALIGNMENT = 64
"""Of each part in a slot."""


@dataclass(frozen=True)
class Shape:
    """Of the matrices of one tensor, as its file has them."""

    type: WeightType
    num_matrices: int
    num_rows: int
    row_length: int

    @property
    def num_blocks(self) -> int:
        """In a row."""
        return self.row_length // BLOCKS[self.type].values


Allocate = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""Memory for (matrices, rows, columns)."""


@dataclass(frozen=True)
class GroupScaled:
    """Matrices of a quantized type (forms.py): tensors (matrices, rows, ...), a matrix contiguous."""

    shape: Shape
    parts: Parts
    levels: torch.Tensor | None
    """(16,) float32"""

    @property
    def form(self) -> Form:
        return FORMS[self.shape.type]

    @property
    def num_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.parts if part is not None)

    def fill(self, matrix: int, first_row: int, blocks: torch.Tensor) -> None:
        """blocks (rows, row bytes) as the file has them, where this memory is, into rows of a matrix."""
        num_rows = len(blocks)
        found = self.form.split(blocks.reshape(-1, BLOCKS[self.shape.type].bytes))
        for own, part in zip(self.parts, found, strict=True):
            if own is not None and part is not None:
                own[matrix, first_row : first_row + num_rows] = part.reshape(num_rows, -1)


@dataclass(frozen=True)
class Plain:
    """Matrices of floats."""

    shape: Shape
    values: torch.Tensor
    """(matrices, rows, row_length) float32, float16 or bfloat16, a matrix contiguous"""

    @property
    def num_bytes(self) -> int:
        return self.values.numel() * self.values.element_size()

    def fill(self, matrix: int, first_row: int, blocks: torch.Tensor) -> None:
        """As GroupScaled's. Types of which the device knows nothing are unpacked by the host."""
        weight_type, rows = self.shape.type, slice(first_row, first_row + len(blocks))
        if weight_type in (WeightType.F32, WeightType.F16, WeightType.BF16):
            self.values[matrix, rows] = blocks.contiguous().view(self.values.dtype)
        else:
            self.values[matrix, rows] = torch.from_numpy(dequantize(blocks.cpu().numpy(), weight_type)).to(self.values)


DeviceMatrices = GroupScaled | Plain


def shape_of(weight_type: WeightType, blocks: Blocks) -> Shape:
    """blocks (..., rows, row bytes)."""
    block = BLOCKS[weight_type]
    num_rows, row_bytes = blocks.shape[-2:]
    return Shape(weight_type, prod(blocks.shape[:-2]), num_rows, row_bytes // block.bytes * block.values)


def empty_matrices(shape: Shape, device: torch.device, allocate: Allocate | None = None) -> DeviceMatrices:
    """Memory for such matrices."""
    new = allocate or (lambda size, dtype: torch.empty(size, dtype=dtype, device=device))
    outer = (shape.num_matrices, shape.num_rows)
    if shape.type not in FORMS:
        return Plain(shape, new((*outer, shape.row_length), plain_type(shape.type)))
    parts = Parts(
        *(
            None if part is None else new((*outer, shape.num_blocks * part.shape[1]), part.dtype)
            for part in empty_parts(shape.type)
        )
    )
    levels = FORMS[shape.type].levels
    return GroupScaled(shape, parts, None if levels is None else torch.from_numpy(levels).to(device))


def matrix_bytes(shape: Shape) -> int:
    """Of one matrix in a slot, each part of it aligned."""
    sizes: list[int] = []

    def count(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        sizes.append(padded(size[1] * size[2] * dtype.itemsize))
        return torch.empty(0)

    empty_matrices(shape, torch.device("cpu"), count)
    return sum(sizes)


def padded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def to_device(weight_type: WeightType, blocks: Blocks, device: torch.device) -> DeviceMatrices:
    """Rows as the file has them, (..., rows, row bytes), on the device with the same values.

    F32, F16 and BF16 stay what they are; other types without a form become bfloat16, rounded to nearest.
    """
    matrices = empty_matrices(shape_of(weight_type, blocks), device)
    for matrix, rows in enumerate(blocks.reshape(-1, *blocks.shape[-2:])):
        fill_from_host(matrices, matrix, rows, device)
    return matrices


def fill_from_host(matrices: DeviceMatrices, matrix: int, rows: Blocks, device: torch.device) -> None:
    """rows (rows, row bytes) of a matrix: copied as they are, and re-laid where they then lie."""
    at_once = max(1, BYTES_AT_ONCE // rows.shape[1])
    for first in range(0, len(rows), at_once):
        matrices.fill(matrix, first, _on(device, rows[first : first + at_once]))


def _on(device: torch.device, rows: Blocks) -> torch.Tensor:
    """By way of pinned memory: only then does a copy run beside what is computed. torch keeps that memory until the
    copy is done. Rows may lie in a mapped file, of which torch would warn that it cannot be written."""
    staged = _staging(rows.shape, is_pinned=device.type == "cuda")
    np.copyto(staged.numpy(), rows)
    return staged.to(device, non_blocking=True)


def _staging(shape: tuple[int, ...], *, is_pinned: bool) -> torch.Tensor:
    """Where the host has no more pinned memory, any will do: copies then wait for one another."""
    if is_pinned:
        try:
            return torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:
            if not isinstance(as_engine_error(error), AcceleratorMemoryError):
                raise
            _tell_slow_copies()
    return torch.empty(shape, dtype=torch.uint8)


@cache
def _tell_slow_copies() -> None:
    """Once."""
    log.warning("the host has no more memory that can be pinned: copies to the GPU go another way, and are slower")
