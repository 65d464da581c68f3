"""Loading a model, with its progress on the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ktdesk.options import EngineOptions
from ktdesk.terminal import Progress, on_one_line
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.text_engine import TextEngine

AnyEngine = TypeVar("AnyEngine", bound=TextEngine)


@contextmanager
def loaded_engine(
    path: Path,
    options: EngineOptions,
    load: Callable[[Path, EngineConfig, Callable[[LoadProgress], None]], AnyEngine],
) -> Iterator[AnyEngine]:
    """The engine, ready to answer; closed at the end. On a terminal the progress is shown while it lasts."""
    progress = Progress()

    def show(state: LoadProgress) -> None:
        progress.advance(state.done_bytes, state.total_bytes, _rest(state))

    if progress.rewrites:
        progress.step(f"Loading {on_one_line(path.name)}")
    try:
        engine = load(path, options.config, show)
    finally:
        progress.erase()
    with engine:
        yield engine


def _rest(state: LoadProgress) -> str:
    """Such as "packing, 1.9 GB/s, 12 s left"."""
    parts: list[str] = [state.stage]
    if state.bytes_per_second is not None:
        parts.append(f"{state.bytes_per_second / 1e9:.1f} GB/s")
    if state.remaining_seconds is not None and state.done_bytes < state.total_bytes:
        parts.append(f"{_duration(state.remaining_seconds)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{math.ceil(whole / 60)} min"
