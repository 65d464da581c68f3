"""What `ktdesk eval` compares side by side: every combination of the options that have several values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ktdesk.errors import UsageError
from ktdesk.options import EngineOptions

MAX_VARIANTS = 64


@dataclass(frozen=True)
class Variant:
    """One file of the model, and one way to compute it."""

    path: Path
    options: EngineOptions

    @property
    def name(self) -> str:
        """What tells it from the others of a run; the file apart."""
        options = self.options
        parts = [options.compute]
        if options.cache_type is not None:
            parts.append(f"cache {options.cache_type}")
        if options.defer != "0":
            parts.append(f"defer {options.defer}")
        if options.experts is not None:
            parts.append(f"{options.experts} experts")
        return ", ".join(parts)


@dataclass(frozen=True)
class Choices:
    """Values of each option, as they were typed: separated by commas."""

    compute: str = "auto"
    cache_type: str | None = None
    defer: str = "0"
    experts: str | None = None


def variants_of(paths: Sequence[Path], choices: Choices, base: EngineOptions) -> list[Variant]:
    """The product of all values. UsageError where a value makes no sense, or there are too many."""
    deferred = _values("--defer", choices.defer)
    if "auto" in deferred:
        raise UsageError("--defer auto is for an accelerator, and eval compares without one: give numbers, as 0,1,2")
    values = itertools.product(
        paths,
        _values("--compute", choices.compute),
        [None] if choices.cache_type is None else _values("--cache-type", choices.cache_type),
        deferred,
        [None] if choices.experts is None else [_count(text) for text in _values("--experts", choices.experts)],
    )
    variants = [
        Variant(path, replace(base, compute=compute, cache_type=cache_type, defer=defer, experts=experts))
        for path, compute, cache_type, defer, experts in values
    ]
    if len(variants) > MAX_VARIANTS:
        raise UsageError(f"{len(variants)} combinations are more than {MAX_VARIANTS}: give fewer values at a time")
    for variant in variants:
        _ = variant.options.config  # refused before anything is loaded
    return variants


def _values(option: str, text: str) -> list[str]:
    values = [value.strip() for value in text.split(",")]
    if not all(values):
        raise UsageError(f"{option} {text}: a value between the commas is missing")
    return list(dict.fromkeys(values))


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--experts {text}: must be a number of at least 1")
    return int(text)
