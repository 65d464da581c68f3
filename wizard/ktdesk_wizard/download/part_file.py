"""A file on its way: its bytes in NAME.part, what is there of them in the journal, and who fetches the rest.

Several threads write, each into a piece of its own. What a piece has got is cut into stretches, each with an XXH3-64;
`commit` puts the bytes of finished stretches on the disk and then says so in the journal. One thread reads stretches
in order for the SHA-256 of the whole; one that has changed on the disk is fetched again.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from ktdesk_wizard.download.byte_map import ByteMap
from ktdesk_wizard.download.journal import Identity, Journal, Stretch
from ktdesk_wizard.store.models import JOURNAL_SUFFIX, PART_SUFFIX


@dataclass(frozen=True)
class PieceLimits:
    piece_bytes: int = 32 << 20
    """Of one request."""
    stretch_bytes: int = 8 << 20
    """That at most are read again to check them."""
    stretch_seconds: float = 2.0
    """What came for so long goes into the journal, however little it is."""
    steal_bytes: int = 4 << 20
    """A piece with twice so much left is shared with who has nothing to do."""
    commit_seconds: float = 1.0
    """What came goes to the disk and into the journal so often."""


@dataclass(eq=False)
class Piece:
    """A range that one thread fetches."""

    position: int
    """Of the next byte."""
    end: int
    """May come nearer: another thread may take over the rest."""
    reserved: int = 0
    """Up to here bytes are being written."""
    stretch_start: int = 0
    stretch_since: float = field(default_factory=time.monotonic)
    digest: Any = field(default_factory=xxhash.xxh3_64)

    def __post_init__(self) -> None:
        self.reserved = self.stretch_start = self.position


class PartFile:
    def __init__(self, target: Path, identity: Identity, limits: PieceLimits) -> None:
        """Opens what is there, or begins it. target: the name that the whole file gets."""
        self.target, self.identity, self._limits = target, identity, limits
        self.part_path, self.journal_path = Path(f"{target}{PART_SUFFIX}"), Path(f"{target}{JOURNAL_SUFFIX}")
        self._lock = threading.Lock()
        self._file = os.open(self.part_path, os.O_RDWR | os.O_CREAT, 0o644)
        had_bytes = os.fstat(self._file).st_size
        self._journal = Journal(self.journal_path, identity)
        self._stretches: dict[int, Stretch] = {}
        self._written = ByteMap()
        for stretch in self._journal.stretches:
            if stretch.end <= had_bytes and not self._overlaps(stretch):
                self._stretches[stretch.start] = stretch
                self._written.add(stretch.start, stretch.end)
        self._free = ByteMap([(0, identity.num_bytes)])
        for interval in self._written:
            self._free.remove(*interval)
        self._active: list[Piece] = []
        self._pending: list[Stretch] = []
        if had_bytes != identity.num_bytes:
            os.ftruncate(self._file, identity.num_bytes)

    def _overlaps(self, stretch: Stretch) -> bool:
        found = self._written.at_or_after(stretch.start)
        return found is not None and found.start < stretch.end

    @property
    def num_bytes(self) -> int:
        return self.identity.num_bytes

    @property
    def done_bytes(self) -> int:
        """Written, also those that the journal does not know of yet."""
        with self._lock:
            return self._written.num_bytes + sum(piece.position - piece.stretch_start for piece in self._active)

    @property
    def has_all(self) -> bool:
        with self._lock:
            return self._written.covers(0, self.num_bytes)

    def take(self) -> Piece | None:
        """The first range that nobody fetches, or half of the largest that somebody does. None: there is neither."""
        with self._lock:
            first = self._free.first()
            if first is not None:
                return self._claim(first.start, min(first.end, first.start + self._limits.piece_bytes))
            return self._steal()

    def take_at(self, position: int) -> Piece | None:
        """The first range at or after a position that nobody fetches, whole."""
        with self._lock:
            found = self._free.at_or_after(position)
            return None if found is None else self._claim(*found)

    def _claim(self, start: int, end: int) -> Piece:
        self._free.remove(start, end)
        piece = Piece(start, end)
        self._active.append(piece)
        return piece

    def _steal(self) -> Piece | None:
        victim = max(self._active, key=lambda piece: piece.end - piece.reserved, default=None)
        if victim is None or victim.end - victim.reserved < 2 * self._limits.steal_bytes:
            return None
        middle = (victim.reserved + victim.end) // 2
        piece = Piece(middle, victim.end)
        victim.end = middle
        self._active.append(piece)
        return piece

    def write(self, piece: Piece, chunk: bytes) -> int:
        """As much of it as belongs to the piece. How much that was: less than given, and the piece is done."""
        with self._lock:
            chunk = chunk[: piece.end - piece.position]
            piece.reserved = piece.position + len(chunk)
        _write_all(self._file, chunk, piece.position)
        piece.digest.update(chunk)
        with self._lock:
            piece.position += len(chunk)
            is_long = piece.position - piece.stretch_start >= self._limits.stretch_bytes
            if is_long or time.monotonic() - piece.stretch_since >= self._limits.stretch_seconds:
                self._end_stretch(piece)
        return len(chunk)

    def release(self, piece: Piece) -> None:
        """What is left of it may be fetched by anybody."""
        with self._lock:
            self._end_stretch(piece)
            self._active.remove(piece)
            self._free.add(piece.position, piece.end)

    def _end_stretch(self, piece: Piece) -> None:
        if piece.position > piece.stretch_start:
            stretch = Stretch(piece.stretch_start, piece.position, piece.digest.hexdigest())
            self._stretches[stretch.start] = stretch
            self._written.add(stretch.start, stretch.end)
            self._pending.append(stretch)
        piece.stretch_start, piece.stretch_since = piece.position, time.monotonic()
        piece.digest = xxhash.xxh3_64()

    def commit(self) -> None:
        """Finished stretches go to the disk, and then into the journal. For one thread at a time."""
        with self._lock:
            pending, self._pending = self._pending, []
        if pending:
            os.fdatasync(self._file)
            self._journal.wrote(pending)

    def checked_bytes(self, start: int) -> bytes | None:
        """The stretch that begins there, read from the disk. None: it is not there, or was found changed."""
        with self._lock:
            stretch = self._stretches.get(start)
        if stretch is None:
            return None
        data = os.pread(self._file, stretch.end - stretch.start, stretch.start)
        if xxhash.xxh3_64_hexdigest(data) == stretch.xxh64:
            return data
        self._drop([stretch])
        return None

    def drop_all(self) -> None:
        """As a whole it is wrong: begin again."""
        with self._lock:
            stretches = list(self._stretches.values())
        self._drop(stretches)

    def _drop(self, stretches: list[Stretch]) -> None:
        self.commit()  # or their lines would come after those that drop them
        with self._lock:
            for stretch in stretches:
                del self._stretches[stretch.start]
                self._written.remove(stretch.start, stretch.end)
                self._free.add(stretch.start, stretch.end)
        self._journal.dropped(stretches)

    def finish(self) -> None:
        """It is whole and right: gets its name, once all of it is on the disk."""
        os.fsync(self._file)
        self.close()
        os.replace(self.part_path, self.target)
        folder = os.open(self.target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.journal_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Of what cannot be of use."""
        self.close()
        self.part_path.unlink(missing_ok=True)
        self.journal_path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._journal.close()
            self._file = -1


def _write_all(file: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view, position = view[written:], position + written
