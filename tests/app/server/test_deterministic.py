"""`--deterministic` over HTTP: alone, in company, from the cache and after a restart, the same text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from running import StartKtdesk
from serving import complete, num_cached, server_process

OPTIONS = ("--deterministic", "--threads", "1", "--cache-disk", "0.05", "--parallel", "8")


def test_the_same_request_gets_the_same_text(start_ktdesk: StartKtdesk, talker: Path) -> None:
    prompts = ["the cat " * (4 + 6 * i) + "abc"[i % 3] for i in range(10)]
    with server_process(start_ktdesk, talker, *OPTIONS) as (process, url):
        alone = [complete(url, prompt, 20)["choices"] for prompt in prompts]
        with ThreadPoolExecutor(10) as pool:
            together = list(pool.map(lambda prompt: complete(url, prompt, 20), prompts))
        assert [answer["choices"] for answer in together] == alone
        assert sum(map(num_cached, together)) > 0
        process.terminate()
        assert process.wait(30) == 0
    with server_process(start_ktdesk, talker, *OPTIONS) as (_, url):
        again = [complete(url, prompt, 20) for prompt in reversed(prompts)]
        assert [answer["choices"] for answer in reversed(again)] == alone
        assert num_cached(again[0]) > 200
