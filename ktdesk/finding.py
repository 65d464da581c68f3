"""Where `run`, `chat` and `demo` find their model: at a server that has it, or else loaded here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from ktdesk.asking import AskedModel, LocalModel
from ktdesk.expert_use import keep_use
from ktdesk.loading import loaded_engine
from ktdesk.options import EngineOptions
from ktdesk.server_client import ServerModel
from ktdesk.server_records import ServerRecord, files_of, health_of, running_servers
from ktdesk.settings import KEY_VARIABLE, Settings
from ktdesk.starting import StartedServer, only_starter
from ktdesk.terminal import Progress, note, on_one_line
from ktdesk_engine.engine_choice import load_engine
from ktdesk_engine.text_engine import TextEngine

SECONDS_BETWEEN_LOOKS = 0.1


@contextmanager
def asked_model(
    path: Path, settings: Settings, options: EngineOptions, *, local: bool = False, keep_alive_seconds: float = 0.0
) -> Iterator[AskedModel]:
    """Ready to answer. local: in this process, whatever servers run. keep_alive_seconds: of a server that is started
    where none has the model; 0: none is started, and the model is loaded in this process."""
    model = None if local else _model_at_server_if_any(path, settings, options, keep_alive_seconds)
    if model is not None:
        yield model
        return
    with loaded_engine(path, options, load_engine) as engine, _use_kept(engine, settings):
        yield LocalModel(engine)


@contextmanager
def _use_kept(engine: TextEngine, settings: Settings) -> Iterator[None]:
    """How its experts are used goes into the profile, as a server does it."""
    use = keep_use(engine, settings.data_folder)
    try:
        yield
    finally:
        if use is not None:
            use.save()


def _model_at_server_if_any(
    path: Path, settings: Settings, options: EngineOptions, keep_alive_seconds: float
) -> ServerModel | None:
    """Where the folder that lists the servers cannot be written, or one does not listen, there is none."""
    try:
        return _model_at_server(path, settings, options, keep_alive_seconds)
    except OSError as error:
        note(f"no server is asked ({error.strerror or error}); the model is loaded here")
        return None


def _model_at_server(
    path: Path, settings: Settings, options: EngineOptions, keep_alive_seconds: float
) -> ServerModel | None:
    with ExitStack() as cleanup:
        started: StartedServer | None = None
        with only_starter(settings):
            record, name = _fitting_server(path, settings, options)
            if record is None and keep_alive_seconds > 0:
                started = StartedServer(path, settings, options, keep_alive_seconds)
                cleanup.callback(started.forget)
                cleanup.callback(started.stop)  # unless it gets ready
                record = started.record()
        if record is None:
            return None
        if not waits_until_ready(record):
            if started is not None:
                raise started.failure()
            return None
        if started is not None:
            cleanup.pop_all()
            started.forget()
    if started is None:
        note(f"asking the server at {record.url}" + (f", run with {record.changed_words}" if record.changed else ""))
    else:
        note(f"{record.url} keeps the model for a while")
    return ServerModel(record.url, record.api_key, name)


def _fitting_server(
    path: Path, settings: Settings, options: EngineOptions
) -> tuple[ServerRecord, str | None] | tuple[None, None]:
    """One that has this file, run as asked for, and what it calls it where it was started with another. Where no
    options of the engine are given: one without any, or else one that a user runs for everybody."""

    def fits(record: ServerRecord) -> bool:
        wanted = record.is_for_all if options == EngineOptions() else record.options == asdict(options)
        has_key = not record.needs_key or KEY_VARIABLE in os.environ
        return wanted and has_key

    records = sorted(filter(fits, running_servers(settings)), key=lambda record: len(record.changed))
    own = ((record, None) for record in records if _is_same_file(path, record.path))
    others = (
        (record, name) for record in records for name, other in files_of(record).items() if _is_same_file(path, other)
    )
    return next(chain(own, others), (None, None))


def _is_same_file(path: Path, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def waits_until_ready(record: ServerRecord) -> bool:
    """False where it does not get there."""
    progress = Progress()
    if progress.rewrites:
        progress.step(f"{on_one_line(record.model)} loads at {record.url}")
    try:
        while record.is_alive:
            stage, percent = _health(record)
            if stage != "loading":
                return stage == "ready"
            progress.tell(f"{percent:3.0f} %")
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return False
    finally:
        progress.erase()


def _health(record: ServerRecord) -> tuple[str, float]:
    """Its stage, and how many percent are loaded."""
    facts = health_of(record)
    try:
        return ("gone", 0.0) if facts is None else (str(facts["status"]), float(facts["percent"]))
    except (ValueError, KeyError, TypeError):
        return "gone", 0.0
