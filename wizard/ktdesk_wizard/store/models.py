"""The models of the store: those with a record, and plain GGUF files that somebody put there.

    for model in stored_models(settings.data_folder / "models"):
        print(model.name, model.num_bytes, model.state)   # model.path is what the engine opens

Names and sizes are looked at, and the first bytes of plain files; `verify` reads all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ktdesk_engine.errors import ModelFileError, ResourceError
from ktdesk_engine.gguf.shards import ShardName
from ktdesk_engine.gguf.source import map_gguf
from ktdesk_profiles.demo import load_demo_profile
from ktdesk_wizard.errors import StoreError
from ktdesk_wizard.store.record import RECORD_SUFFIX, ModelRecord, StoredFile, read_record

PART_SUFFIX = ".part"
JOURNAL_SUFFIX = ".part.journal"
MAX_DEPTH = 6
"""Folders below the store that are looked into."""

DEMO = "demo"
"""The demo model's name, and its folder."""

State = Literal["whole", "partial", "damaged", "unusable"]


@dataclass(frozen=True)
class StoredModel:
    record: ModelRecord
    folder: Path
    """That its files' paths begin from."""
    record_path: Path | None
    """None: plain files, of which nothing is noted."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def path(self) -> Path:
        """The first file: what the engine opens."""
        return self.path_of(self.record.files[0])

    @property
    def num_bytes(self) -> int:
        """Of all files, when they are whole."""
        return self.record.num_bytes

    @property
    def state(self) -> State:
        """By sizes, and by what was noted when it was opened. partial: some file is not there yet; damaged: one has
        another size than it should; unusable: all are what they should be, and no model."""
        sizes = [_size(self.path_of(file)) for file in self.record.files]
        if None in sizes:
            return "partial"
        if sizes != [file.num_bytes for file in self.record.files]:
            return "damaged"
        return "whole" if self.record.problem is None else "unusable"

    @property
    def has_all(self) -> bool:
        """Its files, as they should be, whether they are a model or not."""
        return self.state in ("whole", "unusable")

    @property
    def num_present(self) -> int:
        """How many of its files are there."""
        return sum(_size(self.path_of(file)) == file.num_bytes for file in self.record.files)

    def path_of(self, file: StoredFile) -> Path:
        return self.folder / file.path


def stored_models(folder: Path) -> list[StoredModel]:
    """By name. A record that cannot be read counts as none: its files are then plain files."""
    recorded = [_recorded(path) for path in _files(folder, RECORD_SUFFIX)]
    models = [model for model in recorded if model is not None]
    known = {model.path_of(file) for model in models for file in model.record.files}
    plain = list(_plain_models(folder, [path for path in _files(folder, ".gguf") if path not in known]))
    return sorted((*models, *_with_one_demo(plain)), key=lambda model: model.name.lower())


def _recorded(path: Path) -> StoredModel | None:
    try:
        return StoredModel(read_record(path), path.parent, path)
    except (StoreError, FileNotFoundError):
        return None


def _plain_models(folder: Path, paths: Sequence[Path]) -> Iterator[StoredModel]:
    """Shards of one set are one model, called like its first file."""
    for path in paths:
        shard = ShardName.parse(path.name)
        if shard is None:
            yield _plain(folder, (path,), path.stem)
        elif shard.number == 1:
            names = [str(shard._replace(number=number)) for number in range(1, shard.total + 1)]
            yield _plain(folder, tuple(path.with_name(name) for name in names), shard.stem)


def _with_one_demo(models: Sequence[StoredModel]) -> Iterator[StoredModel]:
    """Of several files in the folder of the demo model, that which ktdesk makes is the demo model."""
    made = load_demo_profile().name
    is_alone = sum(model.name == DEMO for model in models) == 1
    for model in models:
        if model.name != DEMO or is_alone or model.path.stem == made:
            yield model
        else:
            yield replace(model, record=replace(model.record, name=f"{DEMO}/{model.path.stem}"))


def _plain(folder: Path, paths: tuple[Path, ...], stem: str) -> StoredModel:
    """A file that is missing has no bytes: it is told from those that are there by its size."""
    home = paths[0].parent
    files = tuple(StoredFile(path.name, _size(path) or 0, None) for path in paths)
    within = home.relative_to(folder)
    name = DEMO if within == Path(DEMO) else (within / stem).as_posix()
    problem = _foreign_problem(paths)
    return StoredModel(ModelRecord(name, "", str(home), files, problem=problem), home, None)


def _foreign_problem(paths: Iterable[Path]) -> str | None:
    """Why one of them is no GGUF, as far as its first bytes tell. None also where one is missing."""
    try:
        for path in paths:
            if _size(path) is not None:
                map_gguf(path).close()
    except ModelFileError as error:
        return error.problem
    except ResourceError:  # it cannot be looked at, so it may be one
        return None
    return None


def _size(path: Path) -> int | None:
    """None where no file is. Of what a link points to."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _files(folder: Path, suffix: str, depth: int = MAX_DEPTH) -> list[Path]:
    """Files that end so, without those whose names begin with a dot."""
    found: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.name.endswith(suffix) and not entry.is_dir():
                    found.append(Path(entry.path))
                elif depth and entry.is_dir(follow_symlinks=False):
                    found += _files(Path(entry.path), suffix, depth - 1)
    except OSError:  # it is not there, or not for us to look into
        return found
    return sorted(found)
