"""Which models a server may load: those that the command line named, and those that lie in its folders.

They are called as `ktdesk_wizard.store.names` says. A name in a request is looked up here; it never becomes a path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from ktdesk.server.errors import BadRequestError, NotFoundError
from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.shards import shard_paths
from ktdesk_wizard.store.models import StoredModel, stored_models
from ktdesk_wizard.store.names import file_name, find_models, stored_at, title_of

MAX_NAMES = 20
"""In an error: more would hide it."""


@dataclass(frozen=True)
class KnownModel:
    name: str
    path: Path
    """What the engine opens."""
    num_bytes: int
    stored: StoredModel | None = None
    """Where it is one of a folder's."""

    @property
    def modified(self) -> float:
        """Seconds since 1970; 0 where the file is gone."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0


class KnownModels:
    """The first of `named` is the server's own: it is loaded at the start, and meant where nobody is named."""

    def __init__(self, named: Sequence[Path], folders: Sequence[Path] = ()) -> None:
        self._folders = folders
        stored = [model for folder in folders for model in stored_models(folder)]
        self._named = [_known(path, stored) for path in named]
        self._all = self._apart(self._named)

    @property
    def own(self) -> KnownModel:
        return self._named[0]

    def all(self) -> list[KnownModel]:
        """Looks into the folders: what was put there meanwhile is among them."""
        self._all = self._apart([*self._named, *self._in_folders()])
        return self._all

    def _apart(self, listed: Sequence[KnownModel]) -> list[KnownModel]:
        """Each file once, and each with a name of its own."""
        models: dict[str, KnownModel] = {}
        paths: set[Path] = set()
        for model in listed:
            path = _real(model.path)
            if path not in paths:
                paths.add(path)
                name = next(name for name in _names(model) if name not in models)
                models[name] = replace(model, name=name)
        return list(models.values())

    def find(self, name: str | None) -> KnownModel:
        """By its name, or what is left of it without owner or quantization, whatever the case; None: the own."""
        if name is None:
            return self.own
        wanted = name.removesuffix(":latest").removesuffix(".gguf")
        found = _of_name(wanted, self._all) or _of_name(wanted, self.all())
        if len(found) > 1:
            names = " or ".join(model.name for model in found[:MAX_NAMES])
            raise BadRequestError(f"the model {name[:200]!r} may be {names}: name one of them", param="model")
        if not found:
            raise self._not_found(name)
        return found[0]

    def _not_found(self, name: str) -> NotFoundError:
        names = [model.name for model in self._all]
        shown = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
        message = f"there is no model {name[:200]!r} here; these are: {shown}"
        return NotFoundError(message, param="model", code="model_not_found")

    def _in_folders(self) -> Iterator[KnownModel]:
        for folder in self._folders:
            for model in stored_models(folder):
                if model.state == "whole":
                    yield KnownModel(model.name, model.path, model.num_bytes, model)


def _known(path: Path, stored: Sequence[StoredModel]) -> KnownModel:
    """A file that was named. stored: what the folders have, of which it may be one."""
    model = stored_at(path, stored)
    return KnownModel(file_name(path) if model is None else model.name, path, _size(path), model)


def _of_name(name: str, models: Sequence[KnownModel]) -> list[KnownModel]:
    """The closest to it count: the same name, then another case, the file's name, then parts of it, then titles."""
    low = name.lower()
    stored = {model.stored.name: model for model in models if model.stored is not None}
    exact = [model for model in models if model.name == name] or ([stored[name]] if name in stored else [])
    cased = [model for model in models if low in (model.name.lower(), file_name(model.path).lower())]
    parts = find_models(name, [model.stored for model in stored.values() if model.stored is not None])
    if found := exact or cased or [stored[model.name] for model in parts]:
        return found
    return [model for model in models if low and low == (title_of(model.path) or "").lower()]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _names(model: KnownModel) -> Iterator[str]:
    """From the shortest on: two files may be called the same."""
    yield model.name
    longer = f"{model.path.parent.name}/{model.name}"
    yield longer
    yield from (f"{longer}-{number}" for number in count(2))


def _size(path: Path) -> int:
    """Of all shards."""
    try:
        return sum(shard.stat().st_size for shard in shard_paths(path))
    except (OSError, EngineError):
        return 0
