"""Many clients at once, half of whom leave before their answer is whole: nothing fails, and nothing stays behind.

KTDESK_LOAD_SECONDS: how long, instead of a few seconds.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
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
"""What the allocator and the clients of this process may take in all, however long it lasts."""
LATE_GROWTH_BYTES = 24 << 20
"""Of this, in the second half: by then all of it is in use."""


@pytest.fixture(scope="module")
def busy(talker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Little room: requests queue, pages move between all tiers, and places are taken away."""
    cache = CacheLimits(ram_bytes=200_000, disk_bytes=1 << 20, disk_folder=tmp_path_factory.mktemp("prefixes"))
    config = EngineConfig(compute="int8", num_threads=1, context=512, num_sequences=4)
    limits = SchedulerLimits(max_running=8, max_waiting=40)
    yield from running_server(talker, ServerSettings(port=0, finish_seconds=1), config, limits, cache)


def one_client(url: str, seed: int, until: float) -> Counter[int]:
    """The statuses of its requests."""
    chance = random.Random(seed)
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=url, timeout=60) as client:
        while time.monotonic() < until:
            statuses[one_request(client, chance)] += 1
    return statuses


class Question(NamedTuple):
    path: str
    body: dict[str, Any]
    end: str
    """The last line of a whole stream that says something."""


def question(chance: random.Random) -> Question:
    """Through any of the interfaces."""
    length = chance.choice([1, 20, 200, 600]) + chance.randint(0, 20)  # the longest are beyond the context
    prompt, max_tokens = chance.choice("abc") * length, chance.choice([1, 8, 60])
    system = chance.random() < 0.5
    first = [{"role": "system", "content": SYSTEM}] if system else []
    body: dict[str, Any] = {"model": "talker", "messages": [{"role": "user", "content": prompt}]}
    match chance.choice(["chat", "text", "anthropic", "ollama"]):
        case "chat":
            body |= {"messages": [*first, *body["messages"]], "max_tokens": max_tokens, "stream": True}
            return Question("/v1/chat/completions", body, "data: [DONE]")
        case "text":
            body = {"model": "talker", "prompt": prompt, "max_tokens": max_tokens, "stream": True, "n": 2}
            return Question("/v1/completions", body, "data: [DONE]")
        case "anthropic":
            body |= {"max_tokens": max_tokens, "stream": True, **({"system": SYSTEM} if system else {})}
            return Question("/v1/messages", body, 'data: {"type":"message_stop"}')
        case _:
            body |= {"messages": [*first, *body["messages"]], "options": {"num_predict": max_tokens}}
            return Question("/api/chat", body, '"done":true')


def one_request(client: httpx.Client, chance: random.Random) -> int:
    """Its status. A fifth give up after a moment, as many again leave after the first line."""
    asked, leaves = question(chance), chance.random()
    try:
        timeout = 0.05 if leaves < 0.2 else 60
        with client.stream("POST", asked.path, json=asked.body, timeout=timeout) as response:
            lines = response.iter_lines()
            if leaves < 0.5:
                next(lines)
            elif response.status_code == 200:
                *_, last = (line for line in lines if line)
                assert asked.end in last, last
            return response.status_code
    except httpx.TimeoutException:
        return 0


class Watch:
    """The memory of this process, meanwhile."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def growth(self, since: float) -> int:
        """Bytes from a share of the time on."""
        first = self.samples[int(since * (len(self.samples) - 1))]
        return self.samples[-1][1] - first[1]

    @property
    def bytes_per_minute(self) -> float:
        """The slope of the second half."""
        times, sizes = np.array(self.samples[len(self.samples) // 2 :], float).T
        return 60 * float(np.polyfit(times - times[0], sizes, 1)[0])

    def _look(self) -> None:
        process = psutil.Process()
        while not self._is_over.wait(SECONDS / 50):
            self.samples.append((time.monotonic(), process.memory_info().rss))


def test_many_clients_that_come_and_go_leave_nothing_behind(busy: RunningServer) -> None:
    run_clients(busy.url, 1.0)
    wait_until_idle(busy)
    with Watch() as watch:
        statuses = run_clients(busy.url, SECONDS)
        wait_until_idle(busy)
    numbers = busy.host.models[0].answers.numbers()
    print(dict(statuses), {name: numbers[name] for name in numbers if name.endswith("_total")})
    print(f"memory grew by {watch.growth(0)} bytes, by {watch.bytes_per_minute:.0f} a minute in the second half")
    assert {200} <= statuses.keys() <= {0, 200, 400, 429}
    assert watch.growth(0) < GROWTH_BYTES
    assert watch.growth(0.5) < LATE_GROWTH_BYTES
    assert numbers["failed_total"] == 0
    assert numbers["cancelled_total"] > 0
    assert numbers["cache_num_free_pages"] + numbers["cache_num_idle_pages"] == NUM_PAGES
    assert numbers["cache_disk_num_rejected"] == 0
    assert "ktdesk_http_open_requests 1\n" in httpx.get(f"{busy.url}/metrics").text


def run_clients(url: str, seconds: float) -> Counter[int]:
    """How often each status came."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        return sum(pool.map(lambda seed: one_client(url, seed, until), range(NUM_CLIENTS)), Counter())


def wait_until_idle(server: RunningServer) -> None:
    deadline = time.monotonic() + 30
    while any(
        server.host.models[0].answers.numbers()[f"num_{state}"] for state in ("waiting", "prefilling", "decoding")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
