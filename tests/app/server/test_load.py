"""Many clients at once, half of whom leave before their answer is whole: nothing fails, and nothing stays behind."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from serving import RunningServer

NUM_CLIENTS = 16
NUM_REQUESTS = 6


def one_client(url: str, model: str, seed: int) -> list[int]:
    """The statuses of its requests."""
    chance = random.Random(seed)
    statuses = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(NUM_REQUESTS):
            messages = [{"role": "user", "content": "x" * chance.randint(1, 200)}]
            body = {"model": model, "messages": messages, "max_tokens": chance.randint(1, 20), "stream": True}
            leaves = chance.random() < 0.5
            with client.stream("POST", "/v1/chat/completions", json=body) as response:
                statuses.append(response.status_code)
                lines = response.iter_lines()
                if leaves:
                    next(lines)
                else:
                    assert list(lines)[-2:] == ["data: [DONE]", ""]
    return statuses


def test_many_clients_that_come_and_go_leave_nothing_behind(served: RunningServer, client: httpx.Client) -> None:
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        statuses = list(pool.map(lambda seed: one_client(served.url, served.model, seed), range(NUM_CLIENTS)))
    assert statuses == [[200] * NUM_REQUESTS] * NUM_CLIENTS
    deadline = time.monotonic() + 20
    answers = served.host.models[0].answers
    while any(answers.numbers()[f"num_{state}"] for state in ("waiting", "prefilling", "decoding")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "ktdesk_http_open_requests 1\n" in client.get("/metrics").text
