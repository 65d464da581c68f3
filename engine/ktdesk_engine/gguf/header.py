"""The header of one GGUF file: version, metadata, tensors. What a set of shards is, `shards` knows."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.source import MAGIC, map_gguf
from ktdesk_engine.gguf.tensors import MAX_TENSORS, MIN_ENTRY_BYTES, TensorEntry, TensorInfo, place, read_entries
from ktdesk_engine.gguf.values import Cursor, ValueType

VERSIONS = (2, 3)
MAX_KEYS = 1 << 16
MAX_KEY_BYTES = (1 << 16) - 1
MIN_KEY_BYTES = 8 + 1 + 4 + 1
"""Length of the key, a key of one byte, type, a value of one byte."""
DEFAULT_ALIGNMENT = 32
_ALIGNMENT_KEY = "general.alignment"


@dataclass(frozen=True)
class Header:
    """What one file says of itself, and its mapped bytes."""

    path: Path
    buffer: mmap.mmap
    version: int
    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]


def read_header(path: Path) -> Header:
    """Map one file and read its header. Whatever is wrong with it is a ModelFileError."""
    buffer = map_gguf(path)
    cursor = Cursor(path, buffer, len(MAGIC))
    version, metadata, alignment, entries = _read_parts(cursor)
    return Header(path, buffer, version, metadata, place(entries, cursor, alignment))


def header_bytes(path: Path) -> int:
    """How long the header is, of a file that may end anywhere after it. ModelFileError where it ends before."""
    cursor = Cursor(path, map_gguf(path), len(MAGIC))
    _read_parts(cursor)
    return cursor.position


def read_text(path: Path, wanted: str) -> str | None:
    """One key's text; what comes after it is not looked at. None where it has no such key, or one of another type."""
    cursor = Cursor(path, map_gguf(path), len(MAGIC))
    _read_version(cursor)
    cursor.count(MAX_TENSORS, MIN_ENTRY_BYTES, "the number of tensors")
    for index in range(cursor.count(MAX_KEYS, MIN_KEY_BYTES, "the number of metadata keys")):
        key = cursor.string(f"metadata key {index}", MAX_KEY_BYTES)
        what = f"metadata key {_shown(key)}"
        value = cursor.value(cursor.value_type(what), what)
        if key == wanted:
            return value if isinstance(value, str) else None
    return None


def _read_parts(cursor: Cursor) -> tuple[int, dict[str, Any], int, list[TensorEntry]]:
    """Version, metadata, alignment, and the list of tensors."""
    version = _read_version(cursor)
    num_tensors = cursor.count(MAX_TENSORS, MIN_ENTRY_BYTES, "the number of tensors")
    num_keys = cursor.count(MAX_KEYS, MIN_KEY_BYTES, "the number of metadata keys")
    metadata, alignment = _read_metadata(cursor, num_keys)
    return version, metadata, alignment, read_entries(cursor, num_tensors)


def _read_version(cursor: Cursor) -> int:
    version = cursor.integer(ValueType.UINT32, "the version")
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in (1, *VERSIONS):
        problem = f"GGUF version {swapped} in big-endian order: convert it with gguf-convert-endian FILE little"
    elif version == 1:
        problem = "GGUF version 1, of August 2023, is not read (2 and 3 are): convert the model again"
    else:
        problem = f"GGUF version {version} is not known (2 and 3 are): the file is damaged, or ktdesk is too old"
    raise ModelFileError(cursor.path, problem)


def _read_metadata(cursor: Cursor, num_keys: int) -> tuple[dict[str, Any], int]:
    """The keys with their values, and the alignment of the data section."""
    metadata: dict[str, Any] = {}
    alignment = DEFAULT_ALIGNMENT
    for index in range(num_keys):
        key = cursor.string(f"metadata key {index}", MAX_KEY_BYTES)
        if not key:
            raise cursor.damaged(f"metadata key {index} is empty")
        what = f"metadata key {_shown(key)}"
        if key in metadata:
            raise cursor.damaged(f"{what} is there twice")
        value_type = cursor.value_type(what)
        metadata[key] = cursor.value(value_type, what)
        if key == _ALIGNMENT_KEY:
            alignment = _checked_alignment(cursor, value_type, metadata[key])
    return metadata, alignment


def _shown(key: str) -> str:
    """On one line, and short: a damaged length makes a key of whatever follows it."""
    text = repr(key)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _checked_alignment(cursor: Cursor, value_type: ValueType, value: Any) -> int:
    if value_type is not ValueType.UINT32:
        raise cursor.damaged(f"{_ALIGNMENT_KEY} has the type {value_type.name}, not UINT32")
    alignment = int(value)
    if alignment < 1 or alignment & (alignment - 1):
        raise cursor.damaged(f"{_ALIGNMENT_KEY} is {alignment}, not a power of two")
    return alignment
