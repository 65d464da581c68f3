"""Opens a model's file for the server: the one place that decides what computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ktdesk.expert_use import KeptUse, keep_use
from ktdesk.loaded_engine import LoadedEngine, engine_note
from ktdesk.server.ceilings import Ceilings, ceilings_of
from ktdesk.server.engine_port import AnswerEngine, ScheduledEngine
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine_choice import load_engine
from ktdesk_engine.errors import InUseError, ResourceError
from ktdesk_engine.load_progress import LoadProgress
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.prefix_cache.page_folder import folders_of
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.text_engine import TextEngine

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
    use: KeptUse | None = None
    """How its experts are used, kept from start to start; None: it is not counted or not kept."""


def open_model(path: Path, settings: OpenSettings, show: ShowProgress, tell: Tell) -> OpenedModel:
    """Loads it. Raises what keeps it from being loaded, and what `show` raises."""
    engine = load_engine(path, settings.config, show)
    if (what := engine_note(engine)) is not None:
        tell(f"{path.name}: {what}")
    try:
        use = keep_use(engine, settings.data_folder)
        return OpenedModel(engine, _scheduled(engine, settings, tell), use)
    except BaseException:
        engine.close()
        raise


def _scheduled(engine: TextEngine, settings: OpenSettings, tell: Tell) -> ScheduledEngine:
    """Caches in the first folder that nobody has. Where none can be used, the server does without, and says so."""
    cache, name = settings.cache, engine.file.path.name
    ceilings = ceilings_of(engine, settings.data_folder)
    folders = folders_of(cache.disk_folder) if cache.disk_bytes and cache.disk_folder is not None else []
    made: ScheduledEngine | ResourceError | None = None
    for folder in folders:
        made = _caching_in(folder, engine, settings, ceilings)
        if not isinstance(made, InUseError):
            break
    if isinstance(made, ScheduledEngine):
        if folder != folders[0]:
            tell(f"{folders[0]} is in use by another: prefixes of {name} are cached in {folder}")
        return made
    if made is not None:
        tell(f"nothing of {name} is cached on disk: {made}")
    return ScheduledEngine(engine, settings.limits, replace(cache, disk_bytes=0), ceilings)


def _caching_in(
    folder: Path, engine: TextEngine, settings: OpenSettings, ceilings: Ceilings
) -> ScheduledEngine | ResourceError:
    try:
        return ScheduledEngine(engine, settings.limits, replace(settings.cache, disk_folder=folder), ceilings)
    except ResourceError as error:
        return error
