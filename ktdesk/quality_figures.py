"""What `ktdesk eval` found, kept in the user's data for each file: shown beside options that change answers."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ktdesk.terminal import on_one_line
from ktdesk_wizard.errors import HomeFolderError

FOLDER = "quality"
HOW = ("compute", "cache_type", "defer", "experts_used")
"""What tells one figure of a file from another."""
SHOWN = ("mean_kl", "top1", "perplexity", "reference_perplexity", "num_tokens", "text")

Figures = Mapping[str, Any]
"""The values of HOW and SHOWN."""


def save_figures(data_folder: Path, model: Path, found: Sequence[Figures]) -> None:
    """Over those of the same options. HomeFolderError where they cannot be kept."""
    path = _path(data_folder, model)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    kept = {_key(one): one for one in load_figures(data_folder, model)}
    kept |= {_key(one): {name: one[name] for name in (*HOW, *SHOWN)} for one in found}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(list(kept.values()), indent=1), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HomeFolderError(f"{path.parent}: the figures cannot be kept: {error.strerror or error}") from None


def load_figures(data_folder: Path, model: Path) -> list[Figures]:
    """Empty where nothing was measured, or what was kept is damaged: it is only measured again."""
    try:
        found = json.loads(_path(data_folder, model).read_text(encoding="utf-8"))
        return [one for one in found if all(name in one for name in (*HOW, *SHOWN))]
    except (OSError, ValueError, TypeError):
        return []


def as_lines(figures: Sequence[Figures]) -> list[str]:
    """One a way to compute, the least loss first, for people."""
    return [
        on_one_line(f"{_how(one)}: {cost_words(one)}") for one in sorted(figures, key=lambda one: float(one["mean_kl"]))
    ]


def cost_words(one: Figures) -> str:
    return f"mean KL {one['mean_kl']:.2g} nats, same likeliest token {one['top1']:.1%}"


def figure_of(
    figures: Sequence[Figures],
    compute: str = "auto",
    cache_type: str | None = None,
    defer: str = "0",
    experts: int | None = None,
) -> Figures | None:
    """Of what these options compute; None where that was not measured. What is not given is as usual."""
    computes = ("mixed", "int8") if compute == "auto" else (compute,)
    cache = cache_type or ("float32" if compute == "float32" else "f16")
    found = [
        one
        for one in figures
        if one["compute"] in computes
        and one["cache_type"] == cache
        and str(one["defer"] or 0) == defer
        and one["experts_used"] == experts
    ]
    return min(found, key=lambda one: computes.index(one["compute"]), default=None)


def words_of(
    figures: Sequence[Figures],
    model: str,
    compute: str = "auto",
    cache_type: str | None = None,
    defer: str = "0",
    experts: int | None = None,
) -> str:
    """What these options cost with a model's file, or how to measure it. Empty for usual ones that nobody measured."""
    found = figure_of(figures, compute, cache_type, defer, experts)
    if found is not None:
        return cost_words(found)
    changed = {
        "--compute": None if compute == "auto" else compute,
        "--cache-type": cache_type,
        "--defer": None if defer == "0" else defer,
        "--experts": None if experts is None else str(experts),
    }
    options = [part for name, value in changed.items() if value is not None for part in (name, value)]
    return f"not measured: {shlex.join(['ktdesk', 'eval', model, *options])}" if options else ""


def _how(one: Figures) -> str:
    parts = [f"--compute {one['compute']}", f"--cache-type {one['cache_type']}"]
    parts += [f"--defer {one['defer']}"] if one["defer"] else []
    parts += [f"--experts {one['experts_used']}"] if one["experts_used"] else []
    return " ".join(parts)


def _key(one: Figures) -> str:
    return json.dumps([one[name] for name in HOW])


def _path(data_folder: Path, model: Path) -> Path:
    """By the file's name and size: it may lie elsewhere later, and another of its name is another."""
    size = model.stat().st_size if model.exists() else 0
    digest = hashlib.sha256(f"{model.name} {size}".encode()).hexdigest()
    return data_folder / FOLDER / f"{digest[:24]}.json"
