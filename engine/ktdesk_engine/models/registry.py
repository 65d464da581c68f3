"""Finds the model file of an architecture. A family is added by adding its file: nothing here changes.

The file is named like the architecture, with `_` for `-`, and holds ARCHITECTURE and the class MODEL.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ktdesk_engine import models
from ktdesk_engine.errors import UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.models.base import Family

_NOT_FAMILIES = ("base", "registry")


@cache
def families() -> dict[str, Family]:
    """By architecture name."""
    names = [module.name for module in pkgutil.iter_modules(models.__path__) if module.name not in _NOT_FAMILIES]
    modules = [import_module(f"{models.__name__}.{name}") for name in sorted(names)]
    return {module.ARCHITECTURE: module.MODEL for module in modules}


def family_of(file: GGUFFile) -> Family:
    """UnsupportedError, which names the architectures there are, where the file's is not among them."""
    if file.architecture not in families():
        raise UnsupportedError(
            f"{file.path}: the architecture {file.architecture!r} is not one that this engine knows: "
            f"{', '.join(families())}"
        )
    return families()[file.architecture]
