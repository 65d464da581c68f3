"""Fetches the files of one model at once: threads that read ranges, one that hashes, and one that watches over them.

Pieces are taken in the order of the files, so that the first is whole, hashed and named while the others still come.
Whatever ends a transfer, what came is in the journals when it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ktdesk_wizard.download.hashing import Hasher
from ktdesk_wizard.download.origins import Origin, Origins, Patience
from ktdesk_wizard.download.part_file import PartFile, Piece
from ktdesk_wizard.download.rate import RateMeter
from ktdesk_wizard.download.state import FileState, TransferState, Watcher
from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.failures import PassingError
from ktdesk_wizard.hub.http import Http, Response, hang_up
from ktdesk_wizard.hub.ranges import RangeAnswer, open_range

TICK_SECONDS = 0.2
IDLE_SECONDS = 0.1


@dataclass(eq=False)
class FileTransfer:
    part: PartFile
    origins: Origins
    is_whole: bool = False
    """It was checked and has its name."""
    streams: threading.Lock = field(default_factory=threading.Lock)
    """Held by who reads the file from its beginning, where ranges are ignored."""


class Transfer:
    def __init__(
        self,
        http: Http,
        files: Sequence[FileTransfer],
        on_whole: Callable[[FileTransfer], None],
        *,
        num_connections: int = 8,
        patience: Patience | None = None,
        watcher: Watcher | None = None,
        commit_seconds: float = 1.0,
        done_bytes: int = 0,
    ) -> None:
        """on_whole: called for each in its order, when it has its name. done_bytes: of files that need nothing."""
        self._http, self._files = http, files
        self._patience, self._watcher = patience or Patience(), watcher or Watcher()
        self._num_connections, self._done_before = num_connections, done_bytes
        self._commit_seconds = commit_seconds
        self._hasher = Hasher(files, on_whole, self._watcher)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._responses: set[Response] = set()
        self._meter = RateMeter(time.monotonic())
        self._fetched_bytes = 0
        self._progress = 0, time.monotonic()
        """Bytes that had come when there was progress last, and when that was."""
        self._trouble: str | None = None
        self._last_trouble: str | None = None

    def run(self) -> None:
        """Until all files are whole. FetchError, HomeFolderError and OSError where that cannot be."""
        workers = [threading.Thread(target=self._guarded, args=(self._work,)) for _ in range(self._num_connections)]
        workers.append(threading.Thread(target=self._guarded, args=(self._hash,)))
        for worker in workers:
            worker.daemon = True
            worker.start()
        try:
            self._watch()
        finally:
            self._end(workers)
        if self._failure is not None:
            raise self._failure

    def _watch(self) -> None:
        next_commit = time.monotonic() + self._commit_seconds
        while self._failure is None and not all(file.is_whole for file in self._files):
            self._stopping.wait(min(TICK_SECONDS, self._commit_seconds))
            now = time.monotonic()
            if now >= next_commit:
                self._hasher.commit()
                next_commit = now + self._commit_seconds
            self._watcher.saw(self.state())
            self._check_patience(now)
        self._watcher.saw(self.state())

    def _check_patience(self, now: float) -> None:
        """While it is hashed, nothing has to come."""
        is_waiting = not all(file.is_whole or file.part.has_all for file in self._files)
        if not is_waiting or self._fetched_bytes - self._progress[0] >= self._patience.progress_bytes:
            self._progress = self._fetched_bytes, now
        quiet = now - self._progress[1]
        if quiet > self._patience.give_up_seconds:
            last = f"; the last that was heard: {self._last_trouble}" if self._last_trouble else ""
            raise FetchError(f"nothing came for {quiet:.0f} s{last}. What came is kept: pull again to go on")

    def _end(self, workers: Sequence[threading.Thread]) -> None:
        """Also after an interrupt: connections are cut, and what came is put down."""
        self._stopping.set()
        with self._lock:
            responses = list(self._responses)
        for response in responses:
            hang_up(response)
        for worker in workers:
            worker.join(timeout=5.0)
        try:
            self._hasher.close()
        except OSError as error:  # such as a full disk, which is why we end
            self._failure = self._failure or error

    def state(self) -> TransferState:
        now = time.monotonic()
        total = self._done_before + sum(file.part.num_bytes for file in self._files)
        files = tuple(_state_of(file) for file in self._files)
        done = self._done_before + sum(file.done_bytes for file in files)
        with self._lock:
            return TransferState(
                total_bytes=total,
                done_bytes=done,
                fetched_bytes=self._fetched_bytes,
                checked_bytes=self._done_before + self._hasher.checked_bytes,
                bytes_s=self._meter.bytes_s(now),
                seconds_left=self._meter.seconds_left(total - done, now),
                quiet_seconds=self._meter.quiet_seconds(now),
                num_connections=len(self._responses),
                trouble=self._trouble,
                files=files,
            )

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            self._stopping.set()

    def _hash(self) -> None:
        while not self._stopping.is_set() and not all(file.is_whole for file in self._files):
            if not self._hasher.step():
                self._stopping.wait(IDLE_SECONDS)

    def _work(self) -> None:
        while not self._stopping.is_set() and not all(file.is_whole for file in self._files):
            if not self._fetch_something():
                self._stopping.wait(IDLE_SECONDS)

    def _fetch_something(self) -> bool:
        """From the first file where there is something to do. False: there is none now."""
        for file in self._files:
            if file.is_whole or file.part.has_all:
                continue
            if file.origins.ignores_ranges:
                if file.streams.acquire(blocking=False):
                    try:
                        self._try(file, self._stream)
                    finally:
                        file.streams.release()
                    return True
            elif self._try_piece(file):
                return True
        return False

    def _try_piece(self, file: FileTransfer) -> bool:
        if file.origins.wait_seconds():
            return False
        piece = file.part.take()
        if piece is None:
            return False
        try:
            self._try(file, lambda file, origin: self._fetch(file, origin, piece))
        finally:
            file.part.release(piece)
        return True

    def _try(self, file: FileTransfer, job: Callable[[FileTransfer, Origin], None]) -> None:
        """Passing errors make the source wait; refusals end it, and the transfer where it was the last."""
        origin = file.origins.next()
        try:
            job(file, origin)
        except PassingError as error:
            if not self._stopping.is_set():
                self._trouble = self._last_trouble = str(error)
                file.origins.failed(origin, error)
        except FetchError as error:
            file.origins.refused(origin, error)
            other = file.origins.next()  # raises it where no other is left
            self._watcher.note(f"{error}; going on with {other.file.source}")

    def _fetch(self, file: FileTransfer, origin: Origin, piece: Piece) -> None:
        location = file.origins.locate(origin)
        stall_seconds = self._patience.stall_seconds
        with open_range(self._http, location, piece.position, piece.end, stall_seconds=stall_seconds) as answer:
            if answer.start != piece.position:
                file.origins.ignores_ranges = True
                return
            for chunk in self._chunks(answer):
                file.origins.succeeded(origin)
                if file.part.write(piece, chunk) < len(chunk) or self._stopping.is_set():
                    return
        if piece.position < piece.end and not self._stopping.is_set():
            raise PassingError("the connection was cut")

    def _stream(self, file: FileTransfer, origin: Origin) -> None:
        """The whole file from its beginning: of that, what is missing is kept."""
        location = file.origins.locate(origin)
        with open_range(
            self._http, location, 0, location.num_bytes, stall_seconds=self._patience.stall_seconds
        ) as answer:
            position, piece = 0, file.part.take_at(0)
            try:
                for chunk in self._chunks(answer):
                    file.origins.succeeded(origin)
                    end = position + len(chunk)
                    while piece is not None and piece.position < end:
                        file.part.write(piece, chunk[piece.position - position :])
                        if piece.position == piece.end:
                            file.part.release(piece)
                            piece = file.part.take_at(end if piece.end >= end else piece.end)
                    position = end
                    if piece is None or self._stopping.is_set():
                        return
            finally:
                if piece is not None:
                    file.part.release(piece)
        if not file.part.has_all and not self._stopping.is_set():
            raise PassingError("the connection was cut")

    def _chunks(self, answer: RangeAnswer) -> Iterator[bytes]:
        """Those of an answer, counted, and cut off when the transfer ends."""
        with self._lock:
            self._responses.add(answer.response)
        try:
            for chunk in answer.chunks():
                with self._lock:
                    self._fetched_bytes += len(chunk)
                    self._meter.add(len(chunk), time.monotonic())
                self._trouble = None
                yield chunk
        finally:
            with self._lock:
                self._responses.discard(answer.response)


def _state_of(file: FileTransfer) -> FileState:
    part = file.part
    return FileState(part.target.name, part.num_bytes, part.num_bytes if file.is_whole else part.done_bytes)
