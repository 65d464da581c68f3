"""Connections that send nothing, or a request without an end, cannot keep others out."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from running import StartKtdesk
from serving import RunningServer, running_server, server_process

from ktdesk.server.settings import ServerSettings
from ktdesk.server.slow_clients import SlowClients

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@dataclass
class FakeCycle:
    more_body: bool = False
    response_complete: bool = False


@dataclass
class FakeConnection:
    """Its own transport."""

    cycle: FakeCycle | None = None
    is_closed: bool = False
    transport: FakeConnection = field(init=False)

    def __post_init__(self) -> None:
        self.transport = self

    def close(self) -> None:
        self.is_closed = True


def test_only_those_that_are_waited_for_are_closed_after_a_while() -> None:
    now = [0.0]
    clients = SlowClients(10.0, max_connections=lambda: 100, clock=lambda: now[0])
    silent, idle = FakeConnection(), FakeConnection(FakeCycle(response_complete=True))
    sending, answered = FakeConnection(FakeCycle(more_body=True)), FakeConnection(FakeCycle())
    everyone = [silent, idle, sending, answered]
    for now[0] in (0.0, 5.0, 10.0):
        clients.look(everyone)
        assert not any(connection.is_closed for connection in everyone)
    sending.cycle = FakeCycle()  # its body is there
    late = FakeConnection()
    now[0] = 11.0
    clients.look([*everyone, late])
    assert [connection.is_closed for connection in (*everyone, late)] == [True, True, False, False, False]


def test_where_there_are_too_many_the_oldest_without_a_request_leave() -> None:
    now = 0.0
    clients = SlowClients(10.0, max_connections=lambda: 4, clock=lambda: now)
    answered = [FakeConnection(FakeCycle()) for _ in range(3)]
    waiting: list[FakeConnection] = []
    for _ in range(3):
        waiting.append(FakeConnection())
        clients.look([*answered, *waiting])
        now += 1.0
    assert [connection.is_closed for connection in waiting] == [True, True, False]
    assert not any(connection.is_closed for connection in answered)


@pytest.fixture(scope="module")
def hasty(talker: Path) -> Iterator[RunningServer]:
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1, receive_seconds=0.5))


def connection_to(url: str) -> socket.socket:
    address = urlsplit(url)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=20)


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b'Content-Length: 100\r\n\r\n{"model":'])
def test_a_request_that_does_not_come_ends_with_its_connection(hasty: RunningServer, sent: bytes) -> None:
    with connection_to(hasty.url) as connection:
        connection.sendall(sent)
        while connection.recv(1000):  # whatever it is told
            continue


def test_an_answer_may_take_longer_than_a_request(hasty: RunningServer) -> None:
    body = {"model": "talker", "prompt": "x", "max_tokens": 200_000, "stream": True}
    started = time.monotonic()
    with httpx.stream("POST", f"{hasty.url}/v1/completions", json=body, timeout=20) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            assert "DONE" not in line
            if time.monotonic() - started > 1.5:
                return
    raise AssertionError("it ended before")


def test_more_connections_than_files_do_not_keep_others_out(start_ktdesk: StartKtdesk, talker: Path) -> None:
    with (
        server_process(start_ktdesk, talker, "--context", "512") as (process, url),
        ExitStack() as connections,
    ):
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (200, 200))
        for _ in range(400):
            connections.enter_context(connection_to(url)).sendall(HEAD)
        assert httpx.get(f"{url}/health", timeout=20).status_code == 200
        process.terminate()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
