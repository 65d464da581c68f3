"""What somebody typed who means a model that is not listed: whether it can be one, and what Enter would do."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple


class TypedName(NamedTuple):
    is_taken: bool
    """By Enter."""
    words: str
    """What it is taken for, or why it is none."""


def typed_name(text: str, listed: Collection[str]) -> TypedName:
    """listed: the names of the models in the list, which a quantization may follow."""
    if text.partition(":")[0].lower() in {name.lower() for name in listed}:
        return TypedName(True, "A model of the list: Enter plans it.")
    path = _path(text)
    if path is not None and path.is_file():
        return TypedName(True, "A file of this disk: Enter plans it.")
    if path is not None and path.is_dir():
        return TypedName(False, "This is a folder: name a file in it.")
    return _on_hub(text)


def _on_hub(text: str) -> TypedName:
    from ktdesk_wizard.hub.names import RepositoryName, parse_name  # the list was judged: it is loaded

    name = parse_name(text)
    if isinstance(name, RepositoryName):
        return TypedName(True, f"Enter looks for the repository {name.id}.")
    if name is not None:
        return TypedName(True, "Enter fetches what this address has.")
    if "/" in text or text.endswith(".gguf"):
        return TypedName(False, "There is no such file on this disk.")
    return TypedName(False, "Nothing here is called so. OWNER/REPOSITORY, an address or a path can be typed, too.")


def _path(text: str) -> Path | None:
    """None for what no system takes as one."""
    try:
        path = Path(text).expanduser()
        path.is_file()
    except (OSError, RuntimeError, ValueError):
        return None
    return path
