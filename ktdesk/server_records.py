"""Which servers of this user run: one small file each, in the user's runtime folder."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ktdesk.errors import UsageError
from ktdesk.server_answers import facts_of
from ktdesk.settings import KEY_VARIABLE, Settings

STOPS = "it stops: "
"""In a server's log, before the reason."""


@dataclass(frozen=True)
class ServerRecord:
    pid: int
    started: float
    """When the process began, in seconds since 1970: a number that was given to another process is told by it."""
    url: str
    port: int
    model: str
    path: str
    log: str
    needs_key: bool
    options: dict[str, Any]
    """Of the engine, as they were given."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Those of them that somebody gave."""
    for_client: bool = False
    """`run`, `chat` or the app started it for itself, rather than a user for everybody."""

    @property
    def is_for_all(self) -> bool:
        """Whether who gives no options may ask it: what somebody wished for one question is not meant for the next."""
        return not (self.for_client and self.changed)

    @property
    def api_key(self) -> str | None:
        """What is sent to it: the key of the environment, where it needs one."""
        return os.environ.get(KEY_VARIABLE) if self.needs_key else None

    def is_called(self, names: Collection[str]) -> bool:
        """One of them, in small letters: by its port, or the model that it was started with."""
        return str(self.port) in names or self.model.lower() in names

    @property
    def changed_words(self) -> str:
        """Options that it was started with, as they are typed; empty where there are none."""
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.changed.items())

    @property
    def is_alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def records_folder(settings: Settings) -> Path:
    """Made where it is not there; for this user's eyes alone."""
    folder = settings.runtime_folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def log_path(settings: Settings, port: int) -> Path:
    return records_folder(settings) / f"server-{port}.log"


def write_record(settings: Settings, record: ServerRecord) -> Path:
    path = records_folder(settings) / f"server-{record.port}.json"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(record)))
    partial.replace(path)
    return path


def running_servers(settings: Settings) -> list[ServerRecord]:
    """Those that live. What is left of others is removed."""
    records = []
    for path in sorted(records_folder(settings).glob("server-*.json")):
        record = _read(path)
        if record is not None and record.is_alive:
            records.append(record)
        else:
            path.unlink(missing_ok=True)
    return records


def find_server(settings: Settings, name: str | None, advice: str = "") -> ServerRecord:
    """By port, the model that it was started with, or another that it has in memory; None: the only one.

    advice: what else may be said than which, where there are several.
    """
    records = running_servers(settings)
    found = records if name is None else _called(records, {name.lower()}) or _called(records, _meant(settings, name))
    if len(found) == 1:
        return found[0]
    shown = ", ".join(f"{record.port} ({', '.join(_names_of(record))})" for record in records)
    what = f"no server named {name!r} runs" if not found and name else f"say which server{advice}"
    raise UsageError(f"{what}; running: {shown}" if records else "no server runs")


def find_server_to_end(settings: Settings, name: str | None) -> ServerRecord:
    """As `find_server`. UsageError also for a model that was loaded beside others: they would end with it."""
    record = find_server(settings, name, ", or --all")
    names = _names_of(record)
    if name is None or record.is_called(_meant(settings, name)) or len(names) == 1:
        return record
    what = f"{name!r} is one of several models of the server on port {record.port} ({', '.join(names)})"
    raise UsageError(f"{what}: `ktdesk stop {record.port}` ends it with all of them")


def _names_of(record: ServerRecord) -> list[str]:
    """Of the models in memory; of the one that it was started with where none is, or it does not answer."""
    return [str(model["name"]) for model in models_of(record)] or [record.model]


def _called(records: Sequence[ServerRecord], names: Collection[str]) -> list[ServerRecord]:
    """Those that were started so go before those that have such a model too."""
    found = [record for record in records if record.is_called(names)]
    return found or [record for record in records if any(name.lower() in names for name in _names_of(record))]


def _meant(settings: Settings, name: str) -> set[str]:
    """What a name may mean, in small letters: itself, and models of the store of which it is a part."""
    from ktdesk_wizard.store.models import stored_models
    from ktdesk_wizard.store.names import find_models

    stored = find_models(name, stored_models(settings.models_folder))
    return {name.lower(), name.lower().removesuffix(".gguf"), *(model.name.lower() for model in stored)}


def find_log(settings: Settings, name: str | None) -> Path:
    """Of a server that runs; else, by its port, of one that has ended. None where none runs: of the last."""
    try:
        return Path(find_server(settings, name).log)
    except UsageError as error:
        ended = _logs_of_ended(settings)
        chosen = next(iter(ended), None) if name is None and not running_servers(settings) else name
        if chosen in ended:
            return ended[chosen]
        raise UsageError(f"{error}; ended: {', '.join(ended) or 'none'}") from None


def _logs_of_ended(settings: Settings) -> dict[str, Path]:
    """By port, the newest first."""
    running = {record.log for record in running_servers(settings)}
    logs = sorted(records_folder(settings).glob("server-*.log"), key=lambda log: log.stat().st_mtime, reverse=True)
    return {log.stem.removeprefix("server-"): log for log in logs if str(log) not in running}


def stop_server(record: ServerRecord, limit_seconds: float) -> bool:
    """Asks it to end and waits. Whether it ended."""
    return not stop_servers([record], limit_seconds)


def stop_servers(records: Sequence[ServerRecord], limit_seconds: float) -> list[ServerRecord]:
    """Asks each once to end, and waits for all. Those that still run."""
    for record in records:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + limit_seconds
    while running := [record for record in records if record.is_alive]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return running


def _read(path: Path) -> ServerRecord | None:
    try:
        return ServerRecord(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def health_of(record: ServerRecord, timeout_seconds: float = 10.0) -> dict[str, Any] | None:
    """What it says about itself; None where it does not answer."""
    return facts_of(record.url, "/health", timeout_seconds)


def models_of(record: ServerRecord) -> list[dict[str, Any]]:
    """Name, stage and percent of those that it has in memory."""
    facts = health_of(record, timeout_seconds=2.0) or {}
    return list(facts.get("models", []))


def files_of(record: ServerRecord) -> dict[str, str]:
    """Paths by name of the models that it has in memory; none where it does not tell us."""
    facts = facts_of(record.url, "/ktdesk/models", 2.0, record.api_key) or {}
    return {str(model["name"]): str(model["path"]) for model in facts.get("models", [])}
