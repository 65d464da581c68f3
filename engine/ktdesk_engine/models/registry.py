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
from ktdesk_engine.models.base import UNKNOWN_VARIANTS, Family, refuse_all_but

_NOT_FAMILIES = ("base", "registry")


@cache
def families() -> dict[str, Family]:
    """By architecture name."""
    names = [module.name for module in pkgutil.iter_modules(models.__path__) if module.name not in _NOT_FAMILIES]
    modules = [import_module(f"{models.__name__}.{name}") for name in sorted(names)]
    return {module.ARCHITECTURE: module.MODEL for module in modules}


def family_of(file: GGUFFile) -> Family:
    """UnsupportedError where the file's architecture is not among those there are, or in a variant of its own."""
    if file.architecture not in families():
        raise UnsupportedError(
            f"{file.path}: the architecture {file.architecture!r:.80} is not one that this engine knows: "
            f"{', '.join(families())}"
        )
    if pooling := file.hparams().integer("pooling_type", 0, minimum=0):
        raise UnsupportedError(f"{file.path}: a model for embeddings (its pooling_type is {pooling}), not for answers")
    family = families()[file.architecture]
    unknown = {key: harmless for key, harmless in UNKNOWN_VARIANTS.items() if key not in family.computes}
    refuse_all_but(file.hparams(), unknown)
    return family
