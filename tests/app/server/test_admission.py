"""Who is let in, how long they may take, and what they are told otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import RunningServer, complete, running_server

from ktdesk.errors import UsageError
from ktdesk.server.settings import ServerSettings
from ktdesk_engine.scheduler.limits import SchedulerLimits

LONG: dict[str, Any] = {"model": "talker", "prompt": "the cat", "max_tokens": 100_000, "temperature": 0}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def narrow(talker: Path) -> Iterator[RunningServer]:
    """One at a time, and one waits."""
    limits = SchedulerLimits(max_running=1, max_waiting=1)
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1), limits=limits)


def wait_for(server: RunningServer, name: str, value: int) -> None:
    deadline = time.monotonic() + 30
    while server.host.models[0].answers.numbers()[name] != value:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def full(narrow: RunningServer) -> Iterator[RunningServer]:
    """While one is answered and one waits."""
    body = {**LONG, "stream": True}
    with ThreadPoolExecutor(1) as pool:
        with httpx.stream("POST", f"{narrow.url}/v1/completions", json=body, timeout=60) as running:
            lines = running.iter_lines()  # held: without it, the connection is closed
            assert next(lines)
            second = pool.submit(complete, narrow.url, "the dog")
            wait_for(narrow, "num_waiting", 1)
            yield narrow
        assert second.result()["usage"]["completion_tokens"] == 4
    wait_for(narrow, "num_decoding", 0)


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", LONG),
    ("/v1/completions", {**LONG, "stream": True}),
    ("/v1/chat/completions", {"model": "talker", "messages": HI}),
    ("/v1/responses", {"model": "talker", "input": "hi"}),
    ("/v1/messages", {"model": "talker", "messages": HI, "max_tokens": 3}),
    ("/api/chat", {"model": "talker", "messages": HI}),
]


def test_who_finds_the_queue_full_is_told_when_to_come_back(full: RunningServer) -> None:
    for path, body in BODIES:
        answer = httpx.post(f"{full.url}{path}", json=body)
        assert answer.status_code == 429, path
        assert int(answer.headers["Retry-After"]) >= 1
        assert "waiting" in json.dumps(answer.json()["error"])
    assert full.host.models[0].answers.numbers()["refused_total"] >= len(BODIES)


def test_who_would_wait_too_long_is_refused_once_speeds_are_known(talker: Path) -> None:
    limits = SchedulerLimits(max_running=1, max_wait_seconds=1e-5)
    for server in running_server(talker, ServerSettings(port=0), limits=limits):
        complete(server.url, "the cat")  # before anything was measured, nobody is refused
        answer = httpx.post(f"{server.url}/v1/completions", json={**LONG, "prompt": "x" * 5000, "max_tokens": 2})
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) >= 1
        assert "first token would take" in answer.json()["error"]["message"]


def test_an_answer_that_takes_longer_than_the_client_allows_is_given_up(narrow: RunningServer) -> None:
    for path, body in BODIES:
        own = {"deadline_seconds": 0.05}
        asked = {**body, **({"options": own} if path.startswith("/api") else own), "stream": False}
        if path == "/v1/messages":
            asked["max_tokens"] = 100_000
        answer = httpx.post(f"{narrow.url}{path}", json=asked, timeout=60)
        assert answer.status_code == 504, path
        assert "0.05 s" in json.dumps(answer.json()["error"])
    wait_for(narrow, "num_decoding", 0)
    assert complete(narrow.url, "the cat", deadline_seconds=1000)["usage"]["completion_tokens"] == 4


def test_the_servers_own_deadline_holds_for_every_interface(talker: Path) -> None:
    for server in running_server(talker, ServerSettings(port=0, deadline_seconds=0.05)):
        for path, body in BODIES:
            body = {**body, "max_tokens": 100_000} if path.startswith("/v1/messages") else body
            answer = httpx.post(f"{server.url}{path}", json={**body, "stream": False}, timeout=60)
            assert answer.status_code == 504, path
        with httpx.stream("POST", f"{server.url}/v1/completions", json={**LONG, "stream": True}) as stream:
            assert stream.status_code == 200
            assert "deadline" in list(filter(None, stream.iter_lines()))[-1]


def test_a_deadline_is_a_time_to_come() -> None:
    with pytest.raises(UsageError, match="--deadline"):
        ServerSettings(deadline_seconds=0)
