"""What a partial file has, in a file beside it that survives being cut off at any byte.

    {"version": 1, "url": ..., "num_bytes": ..., "sha256": ..., "etag": ...} #CRC
    + 0 8388608 9f1c... #CRC         these bytes were written, with this XXH3-64
    - 0 8388608 #CRC                 they were found wrong

A line counts only with its CRC-32 and its end; reading stops at the first that has not both, and the next writing
goes on from there. Bytes are on the disk before the line that says so.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

VERSION = 1
_LINE = re.compile(rb"(?P<body>[^\n]*) #(?P<crc>[0-9a-f]{8})")
_WRITTEN = re.compile(rb"\+ (\d+) (\d+) ([0-9a-f]{16})")
_DROPPED = re.compile(rb"- (\d+) (\d+)")


class Stretch(NamedTuple):
    start: int
    end: int
    xxh64: str


@dataclass(frozen=True)
class Identity:
    """What the whole file is."""

    url: str
    num_bytes: int
    sha256: str | None
    etag: str | None

    def is_same_file(self, other: Identity) -> bool:
        """By hash wherever it comes from; without one, by address and ETag."""
        if self.num_bytes != other.num_bytes:
            return False
        if self.sha256 is not None or other.sha256 is not None:
            return self.sha256 == other.sha256
        return self.etag is not None and (self.url, self.etag) == (other.url, other.etag)


class Journal:
    """Open for appending. Not for several threads at once."""

    def __init__(self, path: Path, identity: Identity) -> None:
        """Goes on with the journal that is there if it is of the same file, else begins one."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.stretches: tuple[Stretch, ...] = ()
        """That were there."""
        found, stretches, end = _parse(_read_all(self._file))
        if found is not None and found.is_same_file(identity):
            self.stretches = tuple(stretches)
            os.ftruncate(self._file, end)
        else:
            os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_END)
        if found is None or not self.stretches:
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            self._append([json.dumps({"version": VERSION, **asdict(identity)}).encode()])

    def wrote(self, stretches: Sequence[Stretch]) -> None:
        """Their bytes are on the disk already."""
        self._append([f"+ {stretch.start} {stretch.end} {stretch.xxh64}".encode() for stretch in stretches])

    def dropped(self, stretches: Iterable[Stretch]) -> None:
        self._append([f"- {stretch.start} {stretch.end}".encode() for stretch in stretches])

    def close(self) -> None:
        os.close(self._file)

    def _append(self, bodies: Sequence[bytes]) -> None:
        data = b"".join(b"%s #%08x\n" % (body, zlib.crc32(body)) for body in bodies)
        while data:
            data = data[os.write(self._file, data) :]
        os.fdatasync(self._file)


def read_journal(path: Path) -> tuple[Identity | None, list[Stretch]]:
    """None: there is no journal, or not even its first line."""
    try:
        identity, stretches, _ = _parse(path.read_bytes())
    except OSError:
        return None, []
    return identity, stretches


def _read_all(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as copy:
        copy.seek(0)
        return copy.read()


def _parse(data: bytes) -> tuple[Identity | None, list[Stretch], int]:
    """The file, what it has, and where the last good line ends."""
    identity: Identity | None = None
    stretches: dict[int, Stretch] = {}
    position = 0
    while (end := data.find(b"\n", position)) >= 0:
        body = _body(data[position:end])
        if body is None:
            break
        if identity is None:
            identity = _identity(body)
            if identity is None:
                break
        elif not _apply(body, identity, stretches):
            break
        position = end + 1
    return identity, sorted(stretches.values()), position


def _body(line: bytes) -> bytes | None:
    found = _LINE.fullmatch(line)
    if found is None or int(found["crc"], 16) != zlib.crc32(found["body"]):
        return None
    return found["body"]


def _identity(body: bytes) -> Identity | None:
    try:
        facts = json.loads(body)
        if facts.pop("version") != VERSION:
            return None
        return Identity(**facts)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _apply(body: bytes, identity: Identity, stretches: dict[int, Stretch]) -> bool:
    """False for a line that makes no sense."""
    if found := _WRITTEN.fullmatch(body):
        start, end = int(found[1]), int(found[2])
        if not 0 <= start < end <= identity.num_bytes:
            return False
        stretches[start] = Stretch(start, end, found[3].decode())
        return True
    if found := _DROPPED.fullmatch(body):
        stretches.pop(int(found[1]), None)
        return True
    return False
