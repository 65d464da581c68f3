"""A server in a thread of this process, on a tiny model."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ktdesk.server.hosting import ModelHost
from ktdesk.server.running import Server, listening_socket, make_server
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig


class RunningServer(NamedTuple):
    url: str
    host: ModelHost
    server: Server

    @property
    def model(self) -> str:
        return self.host.name


def running_server(path: Path, settings: ServerSettings, config: EngineConfig | None = None) -> Iterator[RunningServer]:
    """Computes in int8: with auto, tiles may round a token that comes in company, and its answer is another."""
    listener: socket.socket = listening_socket(settings)
    host = ModelHost(path, config or EngineConfig(compute="int8", num_threads=1), settings)
    server = make_server(host, settings)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    host.start()
    port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    while host.health.stage == "loading" or not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    assert host.health.stage == "ready", host.failure
    yield RunningServer(url, host, server)
    server.stop()
    thread.join(20)
    host.close()
    assert not thread.is_alive()
