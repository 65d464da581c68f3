"""Runs the server: a socket first, then the model, until a signal or a failure ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import cast

import uvicorn

from ktdesk.errors import PortError
from ktdesk.server.app import make_app
from ktdesk.server.hosting import ModelHost
from ktdesk.server.metrics import Metrics
from ktdesk.server.settings import ServerSettings
from ktdesk.server.slow_clients import Connection, SlowClients, most_connections
from ktdesk.server_records import STOPS

log = logging.getLogger("ktdesk.server")
BACKLOG = 256
TICKS_BETWEEN_SAVES = 600
"""Of how experts are used: a minute, which a server that is killed may lose."""
CANCEL_SECONDS = 2.0
"""For answers to end that were cancelled."""
BY_SIGNAL = "it was told to stop: by the app, `ktdesk stop` or another program"


def listening_socket(settings: ServerSettings) -> socket.socket:
    """Bound before anything is loaded, so that a port that is taken is told at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise PortError(f"--host {settings.host}: {error.strerror or error}") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortError(_explain(settings, error)) from error
    return listener


def _explain(settings: ServerSettings, error: OSError) -> str:
    where = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use: another server runs there (`ktdesk ps`), or choose another --port"
    return f"{where}: {error.strerror or error}"


class Server(uvicorn.Server):
    """uvicorn, with our signals: the first lets answers finish for a while, the second ends at once."""

    def __init__(self, config: uvicorn.Config, host: ModelHost, metrics: Metrics) -> None:
        super().__init__(config)
        self._host = host
        self._metrics = metrics
        self._saving: asyncio.Future[None] | None = None
        self._slow_clients = SlowClients(host.settings.receive_seconds, most_connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Only the main thread gets signals."""
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        kept = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.stop(BY_SIGNAL)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        self._slow_clients.look(cast("set[Connection]", self.server_state.connections))
        if counter % TICKS_BETWEEN_SAVES == TICKS_BETWEEN_SAVES - 1:
            self._saving = asyncio.get_running_loop().run_in_executor(None, self._host.keep_uses)
        limit = self._host.settings.keep_alive_seconds
        if limit is not None:
            self._host.close_unused(limit)
        if self._host.health.stage == "loading":
            self._metrics.note_use()
        elif limit is not None and not self.should_exit and self._metrics.idle_seconds > limit:
            self.stop(f"nobody asked it for {limit:g} s")
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """The engines end the answers whose time is up, and tell those who read them, while uvicorn waits for these."""
        if self._host.health.reason:
            log.info("%s%s", STOPS, self._host.health.reason)
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(None, self._host.close)
        await super().shutdown(sockets)
        if self.force_exit:
            await loop.run_in_executor(None, self._host.close, 0.0)
        await closing

    def stop(self, reason: str = "") -> None:
        """From any thread. reason: for those who wonder where it is."""
        self._host.stop_accepting(reason)
        self.should_exit = True


def make_server(host: ModelHost, settings: ServerSettings) -> Server:
    metrics = Metrics()
    config = uvicorn.Config(
        make_app(host, settings, metrics),
        lifespan="off",
        log_config=None,  # else it closes the handlers of others
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=round(settings.finish_seconds + CANCEL_SECONDS),
    )
    return Server(config, host, metrics)


def run_server(
    host: ModelHost,
    settings: ServerSettings,
    listener: socket.socket,
    when_loaded: Callable[[], None] = lambda: None,
) -> None:
    """Until it is told to stop. Raises what kept the model from being loaded."""
    server = make_server(host, settings)

    def loaded() -> None:
        if host.failure is not None:
            server.stop()
        else:
            when_loaded()

    host.start(loaded)
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        host.close()
    if host.failure is not None:
        raise host.failure
