"""What the store notes of a model: which files it has, their hashes, and where each came from.

<models>/ORG/REPOSITORY/QUANT.model.json      the record
<models>/ORG/REPOSITORY/.QUANT.lock           held while it is fetched
<models>/ORG/REPOSITORY/...gguf               its files, named as the repository names them
<models>/ORG/REPOSITORY/...gguf.part          a file that is not whole yet, with its journal beside it

A record is written when a download begins, so that what is on its way can be listed, gone on with and removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from ktdesk_wizard.errors import StoreError

RECORD_SUFFIX = ".model.json"
VERSION = 1

Origin = Literal["fetched", "hard link", "symbolic link"]


@dataclass(frozen=True)
class StoredFile:
    path: str
    """Below the record's folder, with `/` between its parts."""
    num_bytes: int
    sha256: str | None
    """None: nobody said what it should be."""
    origin: Origin = "fetched"
    original: str | None = None
    """Of a link: the file that it was made to."""
    checked_ns: int | None = None
    """The time of its last change when its hash was found right. Another time means: it may have changed."""


@dataclass(frozen=True)
class ModelRecord:
    name: str
    """By which the command line knows it: ORG/REPOSITORY:QUANT, or HOST/.../FILE of a URL."""
    quantization: str
    source: str
    """The hub, or the URL."""
    files: tuple[StoredFile, ...]
    """In the order of their numbers. The first has the metadata."""
    repository: str | None = None
    revision: str | None = None
    """The commit that all files are of."""
    added: str | None = None
    """When it became whole: ISO 8601."""
    problem: str | None = None
    """Why its files, though whole and what their hashes say, are no model that can be opened."""

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    def with_file(self, changed: StoredFile) -> ModelRecord:
        """The same, with another note of the file at this path."""
        return replace(self, files=tuple(changed if file.path == changed.path else file for file in self.files))


def lock_path(folder: Path, quantization: str) -> Path:
    """Of the file that is locked while a model is fetched or removed."""
    return folder / f".{quantization}.lock"


def remove_if_empty(folder: Path, store: Path) -> None:
    """With those above it, up to the store, as far as nothing is in them."""
    while folder != store and store in folder.parents:
        try:
            folder.rmdir()
        except OSError:  # something is in it
            return
        folder = folder.parent


def write_record(path: Path, record: ModelRecord) -> None:
    """In one step: there is the old record or the new one, never a part."""
    text = json.dumps({"version": VERSION, **asdict(record)}, indent=2) + "\n"
    work = path.with_name(f".{path.name}.new")
    with work.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(work, path)


def read_record(path: Path) -> ModelRecord:
    """StoreError, with what to do, for what is no record."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return _record(facts)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: no record of a model ({error}): remove it, and pull the model again") from error


def _record(facts: Mapping[str, Any]) -> ModelRecord:
    if facts["version"] != VERSION:
        raise ValueError(f"version {facts['version']!r}, not {VERSION}")
    files = tuple(StoredFile(**file) for file in facts["files"])
    if not files or not all(_is_inside(file.path) for file in files):
        raise ValueError("its files are none, or outside of its folder")
    known = {field.name for field in fields(ModelRecord)}
    return ModelRecord(**{key: value for key, value in facts.items() if key in known and key != "files"}, files=files)


def _is_inside(path: str) -> bool:
    return bool(path) and not path.startswith("/") and ".." not in path.split("/")
