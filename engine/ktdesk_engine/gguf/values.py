"""Reading the pieces a GGUF header is made of: numbers, strings, arrays, each checked against what is left.

Nothing is allocated on a file's word: a count or length larger than the rest of the file is refused first.
Arrays of numbers are views of the mapped file; arrays of strings are walked once and decoded on demand.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, overload

import numpy as np

from ktdesk_engine.errors import ModelFileError

MAX_STRING_BYTES = 1 << 26
"""Chat templates are the longest, and far below."""
MAX_ARRAY_VALUES = 1 << 30
MAX_ARRAY_STRINGS = 1 << 22
"""Walked one by one: a damaged count in a large file must not keep us busy for minutes."""
MAX_NESTED_ARRAYS = 1 << 16
MAX_DEPTH = 4
"""Arrays within arrays. The format allows any depth; no file is known to have more than one."""


class ValueType(IntEnum):
    """Types of metadata values. The numbers are those of the format."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


NUMBERS: dict[ValueType, np.dtype[Any]] = {
    ValueType.UINT8: np.dtype("u1"),
    ValueType.INT8: np.dtype("i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("u1"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}

_LENGTH = struct.Struct("<Q")


def damaged(path: Path, problem: str) -> ModelFileError:
    """The error for what no intact file has."""
    return ModelFileError(path, f"{problem}; the file is damaged or was cut off: fetch it again")


class StringArray(Sequence[str]):
    """An array of strings inside the mapped file. A string is decoded each time it is asked for.

    One that is not UTF-8 is an error when decoded, and not before: `raw` gives the bytes of any.
    """

    def __init__(self, path: Path, what: str, buffer: mmap.mmap, starts: array[int]) -> None:
        self._path = path
        self._what = what
        self._buffer = buffer
        self._starts = starts
        """Where each string begins, with its length; one more for the end of the last."""

    def __len__(self) -> int:
        return len(self._starts) - 1

    def raw(self, index: int) -> bytes:
        """The bytes of one string, as they are in the file."""
        index = range(len(self))[index]
        return self._buffer[self._starts[index] + _LENGTH.size : self._starts[index + 1]]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        indices = range(len(self))[index]
        if isinstance(indices, range):
            return [self[i] for i in indices]
        return self._decoded(indices, self._starts[indices], self._starts[indices + 1])

    def __iter__(self) -> Iterator[str]:
        return map(self._decoded, range(len(self)), self._starts, self._starts[1:])

    def _decoded(self, index: int, start: int, end: int) -> str:
        try:
            return self._buffer[start + 8 : end].decode("utf-8")
        except UnicodeDecodeError as error:
            problem = f"{self._what}[{index}] is not UTF-8: {self.raw(index)[:40]!r}"
            raise damaged(self._path, problem) from error

    def __repr__(self) -> str:
        return f"<{len(self)} strings of {self._what}>"


class Cursor:
    """A place in one mapped file, moving on with each read. `what` names the thing read, for the messages."""

    def __init__(self, path: Path, buffer: mmap.mmap, position: int = 0) -> None:
        self.path = path
        self.buffer = buffer
        self.position = position

    @property
    def num_left(self) -> int:
        """Bytes between here and the end of the file."""
        return len(self.buffer) - self.position

    def damaged(self, problem: str) -> ModelFileError:
        return damaged(self.path, problem)

    def skip(self, num_bytes: int, what: str) -> int:
        """Move on; give where it was. The bytes skipped are in the file."""
        if num_bytes > self.num_left:
            raise self.damaged(
                f"{what} takes {num_bytes:,} bytes from byte {self.position:,} on, but the file has only "
                f"{len(self.buffer):,}"
            )
        start = self.position
        self.position += num_bytes
        return start

    def count(self, max_count: int, min_item_bytes: int, what: str) -> int:
        """A number of things that follow: refused when they cannot fit into the rest of the file."""
        count = self.integer(ValueType.UINT64, what)
        limit = min(max_count, self.num_left // min_item_bytes)
        if count > limit:
            raise self.damaged(f"{what} is {count:,}, but at most {limit:,} can follow")
        return count

    def integer(self, value_type: ValueType, what: str) -> int:
        return int(self.numbers(value_type, 1, what)[0])

    def numbers(self, value_type: ValueType, count: int, what: str) -> np.ndarray[Any, Any]:
        """A read-only view of `count` numbers. Booleans come as bool, and are 0 or 1 in the file."""
        dtype = NUMBERS[value_type]
        start = self.skip(count * dtype.itemsize, what)
        values = np.frombuffer(self.buffer, dtype, count, start)
        if value_type is not ValueType.BOOL:
            return values
        if count and values.max() > 1:
            raise self.damaged(f"{what} holds {values.max()} as a boolean, which must be 0 or 1")
        return values.view(np.bool_)

    def string(self, what: str, max_bytes: int = MAX_STRING_BYTES) -> str:
        num_bytes = self.integer(ValueType.UINT64, f"the length of {what}")
        self._check_length(num_bytes, max_bytes, what)
        start = self.skip(num_bytes, what)
        text = self.buffer[start : start + num_bytes]
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8: {text[:40]!r}") from error

    def strings(self, count: int, what: str) -> StringArray:
        """Walk over `count` strings. 260,000 take 30 ms: the loop has nothing in it that can stay out."""
        starts = array("q")
        append, length_at, buffer = starts.append, _LENGTH.unpack_from, self.buffer
        position, end = self.position, len(self.buffer)
        last = end - _LENGTH.size
        for _ in range(count):
            if position > last:
                break
            append(position)
            position += 8 + length_at(buffer, position)[0]
        if len(starts) < count or position > end:
            inside = len(starts) - (position > end)
            raise self.damaged(f"{what} has {count:,} strings, but only {inside:,} end inside the file")
        append(position)
        self.position = position
        longest = int(np.diff(np.frombuffer(starts, np.int64)).max(initial=8)) - 8
        self._check_length(longest, MAX_STRING_BYTES, f"a string of {what}")
        return StringArray(self.path, what, buffer, starts)

    def _check_length(self, num_bytes: int, max_bytes: int, what: str) -> None:
        if num_bytes > max_bytes:
            raise self.damaged(f"{what} is {num_bytes:,} bytes long, at most {max_bytes:,} are allowed")

    def value_type(self, what: str) -> ValueType:
        type_id = self.integer(ValueType.UINT32, f"the type of {what}")
        try:
            return ValueType(type_id)
        except ValueError as error:
            raise self.damaged(f"{what} has the unknown value type {type_id} (0..12 are known)") from error

    def value(self, value_type: ValueType, what: str, depth: int = 0) -> Any:
        """A metadata value: int, float, bool, str, or a sequence of them."""
        if value_type is ValueType.STRING:
            return self.string(what)
        if value_type is ValueType.ARRAY:
            return self._array(what, depth)
        return self.numbers(value_type, 1, what)[0].item()

    def _array(self, what: str, depth: int) -> Sequence[Any] | np.ndarray[Any, Any]:
        if depth == MAX_DEPTH:
            raise self.damaged(f"{what} nests arrays more than {MAX_DEPTH} deep")
        item_type = self.value_type(f"the items of {what}")
        length = f"the length of {what}"
        if item_type is ValueType.STRING:
            return self.strings(self.count(MAX_ARRAY_STRINGS, 8, length), what)
        if item_type is ValueType.ARRAY:
            count = self.count(MAX_NESTED_ARRAYS, 12, length)
            return tuple(self._array(f"{what}[{i}]", depth + 1) for i in range(count))
        count = self.count(MAX_ARRAY_VALUES, NUMBERS[item_type].itemsize, length)
        return self.numbers(item_type, count, what)
