"""What a model is called, the one rule of every command and server, and which other words mean it.

A model of the store has the name that `ktdesk models` lists: OWNER/REPOSITORY:QUANT, or where its file lies in the
store. A file elsewhere is called as its file is, without ending and number of shard. The title that a file gives
itself (`general.name`) is for people, in banners and plans. What is printed anywhere is taken everywhere: whatever the
case, a name without its owner, its quantization or `-GGUF`, the name of its file, a name of the catalogue, the title.

    found = find_models("tiny mixture", stored_models(folder))   # several where it may mean several
    name_of(Path("/models/demo/x.gguf"), stored_models(folder))  # demo
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.header import read_text
from ktdesk_engine.gguf.shards import ShardName
from ktdesk_wizard.store.models import StoredModel

TITLE = "general.name"


def file_name(path: Path) -> str:
    """Without its ending, and without which shard it is."""
    shard = ShardName.parse(path.name)
    return path.name.removesuffix(".gguf") if shard is None else shard.stem


def name_of(path: Path, models: Iterable[StoredModel]) -> str:
    """Of a file, which may be one of the store."""
    stored = stored_at(path, models)
    return file_name(path) if stored is None else stored.name


def stored_at(path: Path, models: Iterable[StoredModel]) -> StoredModel | None:
    """The model that this is a file of, be it a link to it. That which lies there itself goes before one that is
    linked."""
    models, real = list(models), os.path.realpath(path)
    paths = [(each, each.path_of(file)) for each in models for file in each.record.files]
    itself = (model for model, file in paths if file == path)
    linked = (model for model, file in paths if os.path.realpath(file) == real)
    return next(itself, None) or next(linked, None)


def find_models(name: str, models: Iterable[StoredModel], repositories: Sequence[str] = ()) -> list[StoredModel]:
    """Those that a name may mean, the closest to it: all of it, a part of it that is clear, its file, its title.

    repositories: further ones that the name stands for, as a name of the catalogue does.
    """
    models, low = list(models) if name else [], _folded(name)
    for forms in (_exact, _without_a_part):
        found = [model for model in models if low in map(_folded, forms(model))]
        if found:
            return found
    ids = {repository.lower() for repository in repositories}
    found = [model for model in models if (model.record.repository or "").lower() in ids]
    return found or [model for model in models if low in map(_folded, _titles(model))]


def title_of(path: Path) -> str | None:
    """What a file calls itself. None where it does not, or cannot be read."""
    try:
        status = path.stat()
        return _title(path, status.st_size, status.st_mtime_ns)
    except (EngineError, OSError):
        return None


@lru_cache(maxsize=256)
def _title(path: Path, num_bytes: int, changed_ns: int) -> str | None:
    """Read once, and again where the file changed: a server is asked for names that nobody knows."""
    return read_text(path, TITLE)


def _folded(name: str) -> str:
    """One text may be written with other code points, as file systems do."""
    return unicodedata.normalize("NFC", name.strip()).lower()


def _exact(model: StoredModel) -> set[str]:
    return {model.name}


def _without_a_part(model: StoredModel) -> set[str]:
    full = model.name
    short, files = full.rpartition("/")[2], {file_name(model.path), model.path.name}
    if model.record.repository is None:
        return {short, short.removesuffix(".gguf"), f"{full}.gguf", *files}
    bare = {full.rpartition(":")[0], short, short.rpartition(":")[0]}
    quantization = short.rpartition(":")[2]
    without = {_without_gguf(form) for form in bare}
    return bare | without | {f"{short.rpartition(':')[0]}-{quantization}"} | files


def _without_gguf(form: str) -> str:
    return form[:-5] if form.lower().endswith("-gguf") else form


def _titles(model: StoredModel) -> set[str]:
    title = title_of(model.path) if model.has_all else None
    return {title} if title else set()
