"""Many clients at once, half of whom leave before their answer is whole: nothing fails, and nothing stays behind.

KTDESK_LOAD_SECONDS: how long, instead of a few seconds.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from serving import RunningServer, running_server

from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.limits import SchedulerLimits

NUM_CLIENTS = 32
SECONDS = float(os.environ.get("KTDESK_LOAD_SECONDS", "8"))
NUM_PAGES = 4 * 512 // 64
SYSTEM = "x" * 150
GROWTH_BYTES = 64 << 20
"""What the allocator and the clients of this process may take meanwhile, however long it lasts."""


@pytest.fixture(scope="module")
def busy(talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Little room: requests queue, pages move between all tiers, and places are taken away."""
    cache = CacheLimits(ram_bytes=200_000, disk_bytes=1 << 20, disk_folder=tmp_path_factory.mktemp("prefixes"))
    config = EngineConfig(compute="int8", num_threads=1, context=512, num_sequences=4)
    limits = SchedulerLimits(max_running=8, max_waiting=40)
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1), config, limits, cache)


def one_client(url: str, seed: int, until: float) -> set[int]:
    """The statuses of its requests."""
    chance = random.Random(seed)
    statuses = set()
    with httpx.Client(base_url=url, timeout=60) as client:
        while time.monotonic() < until:
            statuses.add(one_request(client, chance))
    return statuses


def one_request(client: httpx.Client, chance: random.Random) -> int:
    length = chance.choice([1, 20, 200, 600]) + chance.randint(0, 20)  # the longest are beyond the context
    system = [{"role": "system", "content": SYSTEM}] if chance.random() < 0.5 else []
    messages = [*system, {"role": "user", "content": chance.choice("abc") * length}]
    body = {"model": "talker", "messages": messages, "max_tokens": chance.choice([1, 8, 60]), "stream": True}
    leaves = chance.random()
    try:
        timeout = 0.05 if leaves < 0.2 else 60
        with client.stream("POST", "/v1/chat/completions", json=body, timeout=timeout) as response:
            lines = response.iter_lines()
            if leaves < 0.5:
                next(lines)
            elif response.status_code == 200:
                assert list(lines)[-2:] == ["data: [DONE]", ""]
            return response.status_code
    except httpx.TimeoutException:
        return 0


def test_many_clients_that_come_and_go_leave_nothing_behind(busy: RunningServer) -> None:
    run_clients(busy.url, 1.0)
    wait_until_idle(busy)
    before = psutil.Process().memory_info().rss
    statuses = run_clients(busy.url, SECONDS)
    wait_until_idle(busy)
    assert {200} <= statuses <= {0, 200, 400, 429}
    assert psutil.Process().memory_info().rss - before < GROWTH_BYTES
    numbers = busy.host.models[0].answers.numbers()
    assert numbers["failed_total"] == 0
    assert numbers["cancelled_total"] > 0
    assert numbers["cache_num_free_pages"] + numbers["cache_num_idle_pages"] == NUM_PAGES
    assert numbers["cache_disk_num_rejected"] == 0
    assert "ktdesk_http_open_requests 1\n" in httpx.get(f"{busy.url}/metrics").text


def run_clients(url: str, seconds: float) -> set[int]:
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        return set().union(*pool.map(lambda seed: one_client(url, seed, until), range(NUM_CLIENTS)))


def wait_until_idle(server: RunningServer) -> None:
    deadline = time.monotonic() + 30
    while any(
        server.host.models[0].answers.numbers()[f"num_{state}"] for state in ("waiting", "prefilling", "decoding")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
