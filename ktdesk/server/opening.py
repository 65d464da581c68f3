"""Opens a model's file for the server: the one place that decides what computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ktdesk.loaded_engine import LoadedEngine, engine_note
from ktdesk.server.engine_port import AnswerEngine, ScheduledEngine
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine_choice import load_engine
from ktdesk_engine.errors import ResourceError
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.machine import thread_places
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.text_engine import TextEngine
from ktdesk_wizard.probe.measurement import with_measurement
from ktdesk_wizard.probe.probe import probe

ShowProgress = Callable[[LoadProgress], None]
"""Called while a model loads. May raise, to cancel."""
Tell = Callable[[str], None]
"""Says a line to the people who run the server."""


@dataclass(frozen=True)
class OpenSettings:
    """How every model of a server is run."""

    config: EngineConfig = field(default_factory=EngineConfig)
    limits: SchedulerLimits = field(default_factory=SchedulerLimits)
    cache: CacheLimits = field(default_factory=CacheLimits)
    data_folder: Path | None = None
    """Where measurements of this machine are kept."""


@dataclass(frozen=True)
class OpenedModel:
    """A model in memory. Closing `answers` closes both."""

    engine: LoadedEngine
    """What the model is: its tokens, its template, its context."""
    answers: AnswerEngine
    """What computes with it."""


def open_model(path: Path, settings: OpenSettings, show: ShowProgress, tell: Tell) -> OpenedModel:
    """Loads it. Raises what keeps it from being loaded, and what `show` raises."""
    engine = load_engine(path, settings.config, show)
    if (what := engine_note(engine)) is not None:
        tell(f"{path.name}: {what}")
    try:
        return OpenedModel(engine, _scheduled(engine, settings, tell))
    except BaseException:
        engine.close()
        raise


def _scheduled(engine: TextEngine, settings: OpenSettings, tell: Tell) -> ScheduledEngine:
    """Where the disk cache cannot be used, the server does without it, and says so."""
    ceiling = _read_ceiling(engine, settings.data_folder)
    try:
        return ScheduledEngine(engine, settings.limits, settings.cache, ceiling)
    except ResourceError as error:
        tell(f"nothing is cached on disk: {error}")
        return ScheduledEngine(engine, settings.limits, replace(settings.cache, disk_bytes=0), ceiling)


def _read_ceiling(engine: TextEngine, folder: Path | None) -> float | None:
    """Bytes a second, as `ktdesk probe --measure` found with as many threads as the engine has; None: it did not."""
    if folder is None or engine.config.num_threads != len(thread_places()):
        return None
    fact = with_measurement(probe(folder), folder).memory.read_bytes_s
    return fact.value if fact.confidence == "measured" else None
