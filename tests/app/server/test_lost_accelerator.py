"""A server whose accelerator is lost while it answers."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path

import httpx
from serving import RunningServer, running_server

from ktdesk.server.settings import ServerSettings
from ktdesk_engine.backends.host_thread import HostThreadAccelerator
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine

BODY = {"model": "talker", "prompt": "abc", "max_tokens": 8, "temperature": 0}
CONFIG = EngineConfig(compute="float32", num_threads=1, context=256, accelerator="host-thread", accelerator_experts=4)


def lose(served: RunningServer) -> None:
    engine = served.host.models[0].engine
    assert isinstance(engine, Engine)
    assert isinstance(engine.accelerator, HostThreadAccelerator)
    engine.accelerator.lose()


def asked_until_other_than(status: int, url: str) -> httpx.Response:
    """The engine's thread takes a moment to end."""
    for _ in range(200):
        response = httpx.post(f"{url}/v1/completions", json=BODY, timeout=60)
        if response.status_code != status:
            return response
        time.sleep(0.05)
    raise AssertionError(response.text)


def test_the_request_is_told_and_the_next_is_answered_by_the_cpu(talker: Path) -> None:
    with contextmanager(running_server)(talker, ServerSettings(port=0, finish_seconds=1), CONFIG) as served:
        first = httpx.post(f"{served.url}/v1/completions", json=BODY, timeout=60)
        assert first.status_code == 200, first.text
        want = first.json()["choices"][0]["text"]
        lose(served)
        failed = httpx.post(f"{served.url}/v1/completions", json=BODY, timeout=60)
        assert failed.status_code == 500
        assert "the accelerator (a thread of the host) is lost" in failed.json()["error"]["message"]
        again = asked_until_other_than(503, served.url)
        assert again.status_code == 200, again.text
        assert again.json()["choices"][0]["text"] == want
        assert served.host.models[0].engine.config.accelerator is None


def test_where_it_may_not_fall_back_the_model_stays_failed(talker: Path) -> None:
    settings = ServerSettings(port=0, finish_seconds=1, falls_back=False)
    with contextmanager(running_server)(talker, settings, CONFIG) as served:
        lose(served)
        assert httpx.post(f"{served.url}/v1/completions", json=BODY, timeout=60).status_code == 500
        while served.host.health.stage != "failed":
            time.sleep(0.02)
        refused = httpx.post(f"{served.url}/v1/completions", json=BODY, timeout=60)
        assert refused.status_code == 503
        assert "is lost" in refused.json()["error"]["message"]
