"""Loading a model, with its progress on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ktdesk.options import EngineOptions
from ktdesk.terminal import Progress, on_one_line
from ktdesk_engine.engine import Engine
from ktdesk_engine.packing import LoadProgress


@contextmanager
def loaded_engine(path: Path, options: EngineOptions) -> Iterator[Engine]:
    """The engine, ready to answer; closed at the end. On a terminal the progress is shown while it lasts."""
    progress = Progress()

    def show(state: LoadProgress) -> None:
        progress.advance(state.done_bytes, state.total_bytes)

    if progress.rewrites:
        progress.step(f"Loading {on_one_line(path.name)}")
    try:
        engine = Engine.load(path, options.config, show)
    finally:
        progress.erase()
    with engine:
        yield engine
