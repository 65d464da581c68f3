"""What was computed for one request serves others: from memory, and from disk after a restart, whatever ended it."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from running import RunKtdesk, StartKtdesk
from serving import complete, num_cached, number, running_server, server_process

from ktdesk.server.settings import ServerSettings
from ktdesk_engine.config import EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.kv_cache import PAGE_SIZE
from ktdesk_engine.prefix_cache.limits import CacheLimits

CONFIG = EngineConfig(compute="float32", num_threads=1, context=1024)
EXACT = ("--compute", "float32", "--threads", "1", "--context", "1024", "--cache-disk", "0.05")


def text(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz ", k=length))


def answers_alone(path: Path, prompts: list[str], max_tokens: int) -> list[str]:
    """From the engine itself, without a cache."""
    with Engine.load(path, CONFIG) as engine:
        requests = [Request(engine.prompt_ids(prompt), SamplingConfig(temperature=0), max_tokens) for prompt in prompts]
        return ["".join(event.text for event in engine.stream(request)) for request in requests]


def test_usage_counts_what_was_not_computed_again(talker: Path, tmp_path: Path) -> None:
    limits = CacheLimits(ram_bytes=1 << 20, disk_bytes=1 << 20, disk_folder=tmp_path)
    for server in running_server(talker, ServerSettings(port=0), CONFIG, cache=limits):
        first = complete(server.url, text(300, 0))
        again = complete(server.url, text(300, 0))
        assert num_cached(first) == 0
        assert 200 < num_cached(again) < 300
        assert num_cached(again) % PAGE_SIZE == 0
        assert again["choices"] == first["choices"]
        messages = [{"role": "user", "content": text(300, 1)}]
        body = {"model": "talker", "messages": messages, "max_tokens": 2}
        counts = [httpx.post(f"{server.url}/v1/messages", json=body).json()["usage"] for _ in range(2)]
        assert [count["cache_read_input_tokens"] > 200 for count in counts] == [False, True]


def test_a_restart_serves_prefixes_from_disk(start_ktdesk: StartKtdesk, talker: Path) -> None:
    with server_process(start_ktdesk, talker, *EXACT) as (process, url):
        first = complete(url, text(500, 0))
        process.terminate()
        assert process.wait(30) == 0
    with server_process(start_ktdesk, talker, *EXACT) as (_, url):
        again = complete(url, text(500, 0))
        assert num_cached(first) == 0
        assert num_cached(again) > 300
        assert again["choices"] == first["choices"]
        assert number(url, "cache_num_hit_pages_disk") > 0
        assert number(url, "cache_disk_num_rejected") == 0


def test_a_server_that_was_killed_while_it_wrote_serves_nothing_wrong_afterwards(
    start_ktdesk: StartKtdesk, talker: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("killed")
    monkeypatch.setenv("KTDESK_HOME", str(home))
    prompts = [text(400 + 20 * seed, seed) for seed in range(6)]
    expected = answers_alone(talker, prompts, 6)
    for round_number in range(3):
        with server_process(start_ktdesk, talker, *EXACT) as (process, url):
            found = len(list(home.glob("prefixes/**/*.page")))
            asking = threading.Thread(target=ask_until_it_is_gone, args=(url, prompts, round_number))
            asking.start()
            deadline = time.monotonic() + 30
            while not list(home.glob("prefixes/**/*.part")):
                if len(list(home.glob("prefixes/**/*.page"))) > found + 3 or time.monotonic() > deadline:
                    break
            process.kill()
            asking.join()
    torn = sorted(home.glob("prefixes/**/*.page"))
    assert torn, "nothing was written"
    torn[0].write_bytes(torn[0].read_bytes()[:-7])
    torn[-1].write_bytes(bytes(len(torn[-1].read_bytes())))
    with server_process(start_ktdesk, talker, *EXACT) as (_, url):
        assert not list(home.glob("prefixes/**/*.part"))
        for _ in range(2):
            answers = [complete(url, prompt, 6) for prompt in prompts]
            assert [answer["choices"][0]["text"] for answer in answers] == expected
        assert number(url, "cache_num_hit_pages_disk") + number(url, "cache_disk_num_rejected") > 0


def ask_until_it_is_gone(url: str, prompts: list[str], seed: int) -> None:
    order = random.Random(seed).sample(prompts, len(prompts))
    with contextlib.suppress(httpx.TransportError):
        for prompt in order:
            complete(url, prompt)


def test_a_second_server_caches_in_a_folder_of_its_own_and_says_so(
    start_ktdesk: StartKtdesk, ktdesk: RunKtdesk, talker: Path
) -> None:
    with (
        server_process(start_ktdesk, talker, *EXACT) as (first, first_url),
        server_process(start_ktdesk, talker, *EXACT) as (second, url),
    ):
        for each in (first_url, url):
            complete(each, text(300, 0))
        for process in (second, first):
            process.terminate()
            assert process.wait(30) == 0
        assert second.stderr is not None
        assert "are cached in" in second.stderr.read()
    listed = json.loads(ktdesk("cache", "ls", "--json").out)["models"]
    assert [model["name"] for model in listed] == ["talker.gguf"] * 2
    assert ktdesk("cache", "rm", "talker.gguf").code == 0
    assert json.loads(ktdesk("cache", "ls", "--json").out)["models"] == []


def test_models_of_one_server_cache_in_folders_of_their_own(talker: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(talker, tmp_path / "other.gguf"))
    limits = CacheLimits(disk_bytes=1 << 20, disk_folder=tmp_path / "cache")
    settings = ServerSettings(port=0, max_models=2)
    for server in running_server(talker, settings, CONFIG, cache=limits, others=[other]):
        for name in ("talker", "other"):
            complete(server.url, text(300, 0), model=name)
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        assert sum("cache_disk_limit_bytes{" in line for line in lines) == 2


@pytest.fixture(params=[True, False])
def pinning(request: pytest.FixtureRequest, talker: Path) -> Iterator[tuple[str, bool]]:
    """A server with room for little, and whether it pins."""
    settings = ServerSettings(port=0, pins_beginnings=request.param)
    for server in running_server(talker, settings, CONFIG):
        yield server.url, request.param


def test_a_system_prompt_stays_cached_while_others_come_and_go(pinning: tuple[str, bool]) -> None:
    url, pins = pinning
    system = {"role": "system", "content": text(200, 0)}

    def ask(question: str) -> int:
        body = {"model": "talker", "messages": [system, {"role": "user", "content": question}], "max_tokens": 2}
        return num_cached(httpx.post(f"{url}/v1/chat/completions", json=body).json())

    assert ask("who?") == 0
    assert number(url, "cache_num_pinned_pages") == (3 if pins else 0)
    for seed in range(6):
        complete(url, text(400, seed + 1))
    assert ask("what is it?") == (192 if pins else 0)
