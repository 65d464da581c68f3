"""Models in several files, NAME-00001-of-00009.gguf and so on: which belong together, and whether they do."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ktdesk_engine.errors import MissingShardError, ModelFileError
from ktdesk_engine.gguf.header import Header
from ktdesk_engine.gguf.hparams import Metadata

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})\.gguf")
_SET_KEYS = ("general.architecture", "general.name")
"""What the shards of one set, where they have it, agree on."""
_MAX_NAMES = 200
"""A message names all missing shards up to here; the largest models come in fewer."""


class ShardName(NamedTuple):
    """A shard's file name taken apart."""

    stem: str
    number: int
    """From 1 on; `split.no` inside the file counts from 0."""
    total: int

    @classmethod
    def parse(cls, name: str) -> ShardName | None:
        """None for a name that is not a shard's."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match["stem"], int(match["number"]), int(match["total"]))

    def __str__(self) -> str:
        return f"{self.stem}-{self.number:05d}-of-{self.total:05d}.gguf"


def shard_paths(path: Path) -> tuple[Path, ...]:
    """All files of the model that `path` is one file of, in order. All of a set of shards are there."""
    name = ShardName.parse(path.name)
    if name is None or os.path.isdir(path):
        return (path,)
    if not 1 <= name.number <= name.total:
        raise ModelFileError(
            path, f"its name says shard {name.number} of {name.total}: it was renamed; restore its name"
        )
    paths = tuple(path.with_name(str(name._replace(number=number))) for number in range(1, name.total + 1))
    missing = [shard for shard in paths if not os.path.exists(shard)]
    if len(missing) == len(paths):
        return (path,)  # opening it says that there is no such file
    if missing:
        raise MissingShardError(path, _missing_problem(missing, name.total))
    return paths


def _missing_problem(missing: Sequence[Path], count: int) -> str:
    names = ", ".join(shard.name for shard in missing[:_MAX_NAMES])
    more = f" and {len(missing) - _MAX_NAMES} more" if len(missing) > _MAX_NAMES else ""
    verb = "is" if len(missing) == 1 else "are"
    return f"{len(missing)} of {count} shards {verb} missing: {names}{more}; fetch them into {missing[0].parent}"


def check_set(headers: Sequence[Header]) -> None:
    """Raise unless the files, in order, are one whole model."""
    if len(headers) == 1:
        _check_single(headers[0])
        return
    total = sum(len(header.tensors) for header in headers)
    for index, header in enumerate(headers):
        _check_number(header, "split.no", index)
        _check_number(header, "split.count", len(headers))
        _check_same_names(headers[0], header)
    _check_no_duplicates(headers)
    for header in headers:
        if header is headers[0] or "split.tensors.count" in header.metadata:
            _check_number(header, "split.tensors.count", total)


def _check_single(header: Header) -> None:
    total = Metadata(header.path, header.metadata).integer("split.count", 0)
    if total > 1:
        problem = f"split.count is {total}: this is one of several files, but is not named like one"
        raise ModelFileError(header.path, f"{problem} (NAME-00001-of-{total:05d}.gguf); give all their names back")


def _check_number(header: Header, key: str, expected: int) -> None:
    found = Metadata(header.path, header.metadata).integer(key, None)
    if found != expected:
        problem = f"{key} is {'missing' if found is None else found}, the files beside it make it {expected}"
        raise ModelFileError(header.path, f"{problem}: it is of another set, or was renamed; fetch the set again")


def _check_same_names(first: Header, other: Header) -> None:
    for key in _SET_KEYS:
        expected = Metadata(first.path, first.metadata).string(key, None)
        found = Metadata(other.path, other.metadata).string(key, None)
        if found is not None and expected is not None and found != expected:
            problem = f"{key} is {found!r}, but {expected!r} in {first.path.name}"
            raise ModelFileError(other.path, f"{problem}: shards of two different models; fetch one set again")


def _check_no_duplicates(headers: Sequence[Header]) -> None:
    owners: dict[str, Path] = {}
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in owners:
                problem = f"tensor {tensor.name!r} is also in {owners[tensor.name].name}"
                raise ModelFileError(header.path, f"{problem}: shards of two different sets; fetch one set again")
            owners[tensor.name] = header.path
