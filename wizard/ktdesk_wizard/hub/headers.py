"""The headers of a model's files, read by ranges: what planning and a rehearsal need, without the weights.

    with tempfile.TemporaryDirectory() as folder:
        shape = fetch_headers(http, gguf_set.files, Path(folder))
        with GGUFFile.open(shape.path) as file:      # all tensors, keys and the tokenizer of the whole model
            ...
        model = model_of_file(shape.path)            # what the planner takes

In `folder` there is one file for each shard, named and as long as the real one. It begins with the real header; the
rest is a hole that takes no room on the disk and reads as zeros. So `GGUFFile.open(shape.path)` gives the model as
the engine will see it: metadata, tokenizer, and of every tensor name, shape, type, place and size. Weights are zeros,
which the engine refuses nowhere: a model can be loaded from it to try its allocation (reading what it reads of the
holes). The files are of use only as long as the folder is there. Bytes of headers are not held to a hash: that is of
the whole file, and checked when it is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.header import header_bytes
from ktdesk_engine.gguf.source import MAGIC
from ktdesk_wizard.errors import FetchError
from ktdesk_wizard.hub.failures import PassingError
from ktdesk_wizard.hub.http import Http
from ktdesk_wizard.hub.location import Location, RemoteFile, locate
from ktdesk_wizard.hub.ranges import read_range
from ktdesk_wizard.report import Report, Silence

FIRST_BYTES = 4 << 20
"""Of the first shard, which has the tokenizer."""
OTHER_BYTES = 128 << 10
MAX_HEADER_BYTES = 64 << 20
STALL_SECONDS = 20.0
TRIES = 4
FIRST_WAIT_SECONDS = 0.5
NUM_CONNECTIONS = 4
T = TypeVar("T")


@dataclass(frozen=True)
class ShapeOnlyModel:
    """Files with true headers and holes for weights."""

    paths: tuple[Path, ...]
    """A file for each shard, in order."""
    num_bytes: int
    """That all the real files have."""
    fetched_bytes: int

    @property
    def path(self) -> Path:
        """To open."""
        return self.paths[0]


def fetch_headers(
    http: Http, files: Sequence[RemoteFile], folder: Path, report: Report | None = None
) -> ShapeOnlyModel:
    """files: of one set, in order. FetchError where they cannot be had, ModelFileError where they are no model."""
    report = report or Silence()
    report.step(f"reading the header{'s' if len(files) > 1 else ''} of {files[0].path}")
    done = 0

    def fetch(index: int) -> tuple[Path, int, int]:
        nonlocal done
        found = _fetch_one(http, files[index], folder, FIRST_BYTES if index == 0 else OTHER_BYTES)
        done += 1
        report.advance(done, len(files))
        return found

    try:
        with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
            found = list(pool.map(fetch, range(len(files))))
    except OSError as error:
        why = error.strerror or error
        raise FetchError(f"{folder}: headers cannot be kept there ({why}): TMPDIR names another folder") from error
    paths, sizes, fetched = zip(*found, strict=True)
    _check_set(paths, files)
    return ShapeOnlyModel(paths, sum(sizes), sum(fetched))


def _check_set(paths: Sequence[Path], files: Sequence[RemoteFile]) -> None:
    """They belong together, and every tensor lies within its file: what was cut off is known before it is fetched."""
    try:
        GGUFFile.open(paths[0]).close()
    except ModelFileError as error:
        remote = next((file for file in files if file.path.rpartition("/")[2] == error.path.name), files[0])
        raise _as_remote(remote, error) from error


def _as_remote(file: RemoteFile, error: ModelFileError) -> ModelFileError:
    """The path that it was read to for a moment says nothing."""
    return ModelFileError(file.path, f"{error.problem} (as {file.source or 'its server'} has it)")


def _fetch_one(http: Http, file: RemoteFile, folder: Path, first_bytes: int) -> tuple[Path, int, int]:
    """The file with a hole, how large the real one is, and how much was read of it."""
    location = _tried(file, lambda: locate(http, file))
    path, have, wanted = folder / file.path.rpartition("/")[2], 0, first_bytes
    with path.open("wb") as out:
        while True:
            end = min(wanted, location.num_bytes)
            out.write(_read(http, file, location, have, end))
            out.flush()
            have = end
            if _is_whole(path, file, have, location.num_bytes):
                break
            wanted *= 2
        out.truncate(location.num_bytes)
    return path, location.num_bytes, have


def _read(http: Http, file: RemoteFile, location: Location, start: int, end: int) -> bytes:
    return _tried(file, lambda: read_range(http, location, start, end, stall_seconds=STALL_SECONDS))


def _is_whole(path: Path, file: RemoteFile, have: int, num_bytes: int) -> bool:
    """Whether the header ends within what we have. What is no GGUF at all is known from its first bytes."""
    with path.open("rb") as head:
        is_gguf = head.read(len(MAGIC)) == MAGIC
    try:
        header_bytes(path)
    except ModelFileError as error:
        if not is_gguf or have >= min(num_bytes, MAX_HEADER_BYTES):
            raise _as_remote(file, error) from error
        return False
    return True


def _tried(file: RemoteFile, ask: Callable[[], T], left: int = TRIES - 1) -> T:
    try:
        return ask()
    except PassingError as error:
        if not left:
            raise FetchError(f"{file.path}: {error}, {TRIES} times; try again later, or another --source") from error
        wait = FIRST_WAIT_SECONDS * 2 ** (TRIES - 1 - left)
        time.sleep(wait if error.wait_seconds is None else error.wait_seconds)
        return _tried(file, ask, left - 1)
