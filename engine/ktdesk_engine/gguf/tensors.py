"""The tensors one GGUF file lists: reading the list, and checking that what it says fits the file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ktdesk_engine.errors import UnsupportedError
from ktdesk_engine.gguf.types import block_format, foreign_type, is_readable, type_name
from ktdesk_engine.gguf.values import Cursor, ValueType
from ktdesk_engine.quants.formats import BLOCKS, WeightType

MAX_TENSORS = 1 << 20
MIN_ENTRY_BYTES = 8 + 1 + 4 + 8 + 4 + 8
"""Length of the name, a name of one byte, number of dimensions, one dimension, type, offset."""
MAX_NAME_BYTES = 63
MAX_DIMS = 4
MAX_VALUES = 2**63 - 1


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a model: what it is and where its bytes lie."""

    name: str
    shape: tuple[int, ...]
    """In the order of the file: the first is the length of a row, whose values lie side by side."""
    type_id: int
    path: Path
    """The file it lies in, one of the shards."""
    offset: int
    """From the start of that file, in bytes."""
    num_bytes: int
    """For a type whose block size is not known: up to the next tensor or the end of the file."""

    @property
    def type(self) -> WeightType:
        """UnsupportedError where the engine cannot read the type."""
        if not self.is_readable:
            problem = f"tensor {self.name!r} has the type {self.type_name} ({self.type_id})"
            advice = foreign_type(self.type_id).advice
            raise UnsupportedError(f"{self.path}: {problem}, which this engine cannot read; {advice}")
        return WeightType(self.type_id)

    @property
    def type_name(self) -> str:
        return type_name(self.type_id)

    @property
    def is_readable(self) -> bool:
        return is_readable(self.type_id)

    @property
    def num_values(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """The byte after its last."""
        return self.offset + self.num_bytes

    def place_name(self, place: int) -> str:
        """What begins `place` bytes into a readable tensor: "block 2 of row 17 of matrix 3", all counted from 0."""
        block = BLOCKS[self.type]
        row, index = divmod(place // block.bytes, self.shape[0] // block.values)
        what = f"{'block' if block.values > 1 else 'value'} {index}"
        if len(self.shape) == 1:
            return what
        matrix, row = divmod(row, self.shape[1])
        stacked = "expert" if "_exps" in self.name else "matrix"
        return f"{what} of row {row}" + (f" of {stacked} {matrix}" if len(self.shape) > 2 else "")


class TensorEntry(NamedTuple):
    """A tensor as the file lists it."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    """From the start of the file's data section, in bytes."""


def read_entries(cursor: Cursor, num_tensors: int) -> list[TensorEntry]:
    """The file's list of tensors, in its order. Each makes sense alone; `place` checks them together."""
    entries = [_read_entry(cursor, index) for index in range(num_tensors)]
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise cursor.damaged(f"tensor {entry.name!r} is listed twice")
        seen.add(entry.name)
    return entries


def _read_entry(cursor: Cursor, index: int) -> TensorEntry:
    name = cursor.string(f"the name of tensor {index}", MAX_NAME_BYTES)
    if not name:
        raise cursor.damaged(f"tensor {index} has an empty name")
    what = f"tensor {name!r}"
    num_dims = cursor.integer(ValueType.UINT32, f"the number of dimensions of {what}")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.damaged(f"{what} has {num_dims} dimensions, 1 to {MAX_DIMS} are allowed")
    shape = tuple(cursor.numbers(ValueType.UINT64, num_dims, f"the shape of {what}").tolist())
    type_id = cursor.integer(ValueType.UINT32, f"the type of {what}")
    offset = cursor.integer(ValueType.UINT64, f"the offset of {what}")
    entry = TensorEntry(name, shape, type_id, offset)
    _check_shape(cursor, entry)
    return entry


def _check_shape(cursor: Cursor, entry: TensorEntry) -> None:
    what = f"tensor {entry.name!r} of shape {entry.shape}"
    if 0 in entry.shape:
        raise cursor.damaged(f"{what} has no values: every dimension must be at least 1")
    if math.prod(entry.shape) > MAX_VALUES:
        raise cursor.damaged(f"{what} has more values than 63 bits can count")
    block = block_format(entry.type_id)
    if block is not None and entry.shape[0] % block.values:
        blocks = f"{type_name(entry.type_id)} blocks of {block.values} values"
        raise cursor.damaged(f"{what} has rows that are no whole number of {blocks}")


def place(entries: Sequence[TensorEntry], cursor: Cursor, alignment: int) -> tuple[TensorInfo, ...]:
    """Where each tensor's bytes lie, in the order of the list. The cursor stands at the end of that list.

    The data section begins at the next multiple of the alignment. Tensors are aligned, inside the file, and
    share no byte; gaps between them are allowed.
    """
    data_start = -(-cursor.position // alignment) * alignment
    infos: dict[str, TensorInfo] = {}
    next_start = len(cursor.buffer)
    ascending = sorted(entries, key=lambda entry: entry.offset)
    for entry in reversed(ascending):
        info = _place_one(entry, cursor, alignment, data_start, next_start)
        infos[entry.name] = info
        next_start = info.offset
    _check_no_overlap(cursor, reversed(infos.values()))
    return tuple(infos[entry.name] for entry in entries)


def _place_one(entry: TensorEntry, cursor: Cursor, alignment: int, data_start: int, next_start: int) -> TensorInfo:
    if entry.offset % alignment:
        raise cursor.damaged(
            f"tensor {entry.name!r} has the offset {entry.offset:,}, which is no multiple of the alignment {alignment}"
        )
    offset = data_start + entry.offset
    block = block_format(entry.type_id)
    num_bytes = next_start - offset
    if block is not None:
        num_bytes = math.prod(entry.shape) // block.values * block.bytes
    file_bytes = len(cursor.buffer)
    if offset >= file_bytes or offset + num_bytes > file_bytes:
        end = offset + max(num_bytes, 1)
        raise cursor.damaged(f"tensor {entry.name!r} reaches to byte {end:,} of a file of {file_bytes:,}")
    return TensorInfo(entry.name, entry.shape, entry.type_id, cursor.path, offset, num_bytes)


def _check_no_overlap(cursor: Cursor, ascending: Iterable[TensorInfo]) -> None:
    previous: TensorInfo | None = None
    for info in ascending:
        if previous is not None and info.offset < max(previous.end, previous.offset + 1):
            raise cursor.damaged(f"tensors {previous.name!r} and {info.name!r} overlap at byte {info.offset:,}")
        previous = info
