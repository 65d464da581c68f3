"""`ktdesk serve`: settings, state file and log around the server."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from ktdesk.options import EngineOptions, changed_options
from ktdesk.server.heap import keep_one_heap
from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModels
from ktdesk.server.memory_guard import MemoryGuard
from ktdesk.server.opening import OpenSettings
from ktdesk.server.running import listening_socket, run_server
from ktdesk.server.settings import ServerSettings
from ktdesk.server.slow_clients import raise_file_limit
from ktdesk.server_records import ServerRecord, log_path, write_record
from ktdesk.settings import Settings
from ktdesk.terminal import note
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.limits import SchedulerLimits

log = logging.getLogger("ktdesk.server")


def serve_models(
    known: KnownModels,
    settings: Settings,
    server: ServerSettings,
    engine: EngineOptions,
    limits: SchedulerLimits,
    cache: CacheLimits,
    *,
    guards_memory: bool = True,
    for_client: bool = False,
) -> None:
    """Until a signal ends it. What can be said about the first file is said before anything listens."""
    config = replace(engine.config, num_sequences=1 if engine.context is None else limits.max_running)
    GGUFFile.open(known.own.path).close()
    how = OpenSettings(config, limits, cache, settings.data_folder)
    raise_file_limit()
    keep_one_heap()
    with listening_socket(server) as listener:
        host = ModelHost(known, server, how, _tell, MemoryGuard(how) if guards_memory else None)
        record = _record(host, settings, server, engine, listener, for_client)
        _log_to(Path(record.log))
        state_file = write_record(settings, record)
        try:
            _tell(f"{host.name} loads; {record.url} listens (/health says how far it is)")
            run_server(host, server, listener, lambda: _tell(_ready_words(host, record.url)))
            _tell("stopped")
        finally:
            state_file.unlink(missing_ok=True)


def _ready_words(host: ModelHost, url: str) -> str:
    return f"{host.name} is ready at {url}" + "".join(model.greeting for model in host.models[:1])


def _record(
    host: ModelHost,
    settings: Settings,
    server: ServerSettings,
    engine: EngineOptions,
    listener: socket.socket,
    for_client: bool,
) -> ServerRecord:
    port = listener.getsockname()[1]
    name = f"[{server.host}]" if ":" in server.host else server.host
    return ServerRecord(
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        url=f"http://{name}:{port}",
        port=port,
        model=host.name,
        path=str(host.path.absolute()),
        log=str(log_path(settings, port)),
        needs_key=server.api_key is not None,
        options=asdict(engine),
        changed=changed_options(engine),
        for_client=for_client,
    )


def _log_to(path: Path) -> None:
    """What people see on standard error is kept for `ktdesk logs`."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of clients that are gone, once for each piece they miss
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("ktdesk.server", "ktdesk.engine", "uvicorn"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if name == "ktdesk.server" else logging.WARNING)
    logging.getLogger("ktdesk.engine").addHandler(logging.StreamHandler())  # people see it as well


def _tell(message: str) -> None:
    note(message)
    log.info("%s", message)
