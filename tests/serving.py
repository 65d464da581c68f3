"""A server in a thread of this process, on a tiny model."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from running import StartKtdesk

from ktdesk.server.hosting import ModelHost
from ktdesk.server.known_models import KnownModels
from ktdesk.server.opening import OpenSettings
from ktdesk.server.running import Server, listening_socket, make_server
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.limits import SchedulerLimits


class RunningServer(NamedTuple):
    url: str
    host: ModelHost
    server: Server

    @property
    def model(self) -> str:
        return self.host.name


def running_server(
    path: Path,
    settings: ServerSettings,
    config: EngineConfig | None = None,
    limits: SchedulerLimits | None = None,
    cache: CacheLimits | None = None,
    others: Sequence[Path] = (),
) -> Iterator[RunningServer]:
    """Computes in int8: with auto, tiles may round a token that comes in company, and its answer is another."""
    listener: socket.socket = listening_socket(settings)
    how = OpenSettings(
        config or EngineConfig(compute="int8", num_threads=1), limits or SchedulerLimits(), cache or CacheLimits()
    )
    host = ModelHost(KnownModels([path, *others]), settings, how)
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_ready(process: subprocess.Popen[str], url: str) -> None:
    for _ in range(1200):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("it does not get ready")


@contextmanager
def server_process(start: StartKtdesk, path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process of its own, and its URL; killed at the end if it still runs."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with start("serve", path, "--port", str(port), "--finish-seconds", "1", *arguments) as process:
        try:
            wait_until_ready(process, url)
            yield process, url
        finally:
            process.kill()


def number(url: str, name: str) -> float:
    """One of /metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"ktdesk_{name}{{"))


def complete(url: str, prompt: str, max_tokens: int = 4, **wishes: Any) -> dict[str, Any]:
    """The greedy text completion."""
    body = {"model": "talker", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **wishes}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    facts = answer.json()
    assert isinstance(facts, dict)
    return facts


def num_cached(answer: dict[str, Any]) -> int:
    count = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert isinstance(count, int)
    return count
