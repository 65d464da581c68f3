"""Many requests over one real, tiny model: each gets what it would get alone, and nothing stays behind."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import CacheType, EngineConfig, Request, SamplingConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.engine_thread import EngineThread
from ktdesk_engine.errors import BusyError, ContextOverflowError, RequestError, ResourceError, StoppingError
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.limits import SchedulerLimits

TinyModel = Callable[[str], Path]
GREEDY = SamplingConfig(temperature=0)
EXACT = EngineConfig(compute="float32", num_threads=1, prefill_chunk=100, num_sequences=2)
FAMILIES = ["llama-moe", "qwen3moe", "deepseek2-lite", "gpt-oss"]


def prompt(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def greedy(token_ids: list[int], num_tokens: int) -> Request:
    return Request(tuple(token_ids), GREEDY, num_tokens, ignore_eos=True)


def ids_of(events: list[StreamEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def run_all(thread: EngineThread, requests: list[Request]) -> list[list[int]]:
    """All at the same time."""
    streams = [thread.submit(request) for request in requests]
    return [ids_of(list(stream)) for stream in streams]


def num_held_pages(thread: EngineThread) -> int:
    """Pages that are neither free nor kept for others alone."""
    cache = thread.stats().cache
    num_pages = 2 * thread.engine.cache.max_pages
    return num_pages - cache.num_free_pages - cache.num_idle_pages


@pytest.fixture
def thread(tiny_model: TinyModel) -> Iterator[EngineThread]:
    with EngineThread(Engine.load(tiny_model("llama-moe"), EXACT)) as thread:
        yield thread


@pytest.mark.parametrize(("family", "cache_type"), [*((family, "float32") for family in FAMILIES), ("gpt-oss", "bf16")])
def test_company_and_cached_pages_change_no_token(
    tiny_model: TinyModel, family: str, cache_type: CacheType, tmp_path: Path
) -> None:
    config = EngineConfig(compute="float32", num_threads=1, prefill_chunk=100, num_sequences=3)
    beginnings = [prompt(200, 0), prompt(130, 1), []]
    requests = [greedy(beginnings[seed % 3] + prompt(20 + 7 * seed, seed + 9), 30) for seed in range(9)]
    with Engine.load(tiny_model(family), config) as engine:
        alone = [ids_of(list(engine.stream(request))) for request in requests]
    limits = CacheLimits(ram_bytes=4 << 20, disk_bytes=32 << 20, disk_folder=tmp_path)
    with EngineThread(Engine.load(tiny_model(family), config), SchedulerLimits(max_running=5), limits) as thread:
        assert run_all(thread, requests) == alone
        assert run_all(thread, requests) == alone
        assert thread.stats().cache.num_hit_pages.total > 20
        assert thread.stats().cache.num_free_pages + thread.stats().cache.num_idle_pages == 3 * 8
    with EngineThread(Engine.load(tiny_model(family), config), None, limits) as thread:
        assert run_all(thread, requests) == alone
        stats = thread.stats().cache
        assert stats.num_hit_pages.disk > 0
        assert stats.disk is not None
        assert stats.disk.num_rejected == 0


@pytest.mark.parametrize("seed", range(2))
def test_sixteen_streams_that_come_and_go_get_what_they_would_get_alone(tiny_model: TinyModel, seed: int) -> None:
    rng = random.Random(seed)
    requests = [greedy(prompt(rng.choice([5, 80, 150]), rng.randint(0, 3)), rng.randint(1, 60)) for _ in range(40)]
    with Engine.load(tiny_model("qwen3moe"), EXACT) as engine:
        alone = {request: ids_of(list(engine.stream(request))) for request in set(requests)}
    limits = SchedulerLimits(max_running=16)
    with EngineThread(Engine.load(tiny_model("qwen3moe"), EXACT), limits, CacheLimits(ram_bytes=20_000)) as thread:

        def ask(request: Request, num_events: int) -> None:
            stream = thread.submit(request)
            events = [event for event, _ in zip(stream, range(num_events), strict=False)]
            stream.close()
            assert ids_of(events) == alone[request][: len(ids_of(events))]
            results.put(events[-1].finish_reason is not None)

        results: SimpleQueue[bool] = SimpleQueue()
        clients = [threading.Thread(target=ask, args=(request, rng.choice([3, 100, 100]))) for request in requests]
        for client in clients:
            client.start()
            time.sleep(rng.random() * 0.01)
        for client in clients:
            client.join()
        assert results.qsize() == 40
        wait_until(lambda: not thread.stats().num_decoding and not thread.stats().num_prefilling)
        assert num_held_pages(thread) == 0
        thread._cache.check_integrity()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_the_last_event_says_what_was_cached(thread: EngineThread) -> None:
    for num_cached in (0, 128):
        *_, last = thread.submit(greedy(prompt(150, 0), 4))
        assert last.timings is not None
        assert last.timings.num_cached_tokens == num_cached
        assert last.finish_reason == "length"


def test_events_can_be_delivered_to_a_function(thread: EngineThread) -> None:
    events: SimpleQueue[StreamEvent | Exception] = SimpleQueue()
    thread.submit(greedy(prompt(10, 0), 3), deliver=events.put)
    got = [events.get(timeout=30) for _ in range(3)]
    assert all(isinstance(event, StreamEvent) for event in got)


def test_an_abandoned_stream_frees_its_place(thread: EngineThread) -> None:
    stream = thread.submit(greedy(prompt(10, 0), 400))
    for event in stream:
        assert event.text is not None
        break
    stream.close()
    wait_until(lambda: thread.stats().counters.num_cancelled == 1)
    wait_until(lambda: num_held_pages(thread) == 0)


def test_what_cannot_be_answered_is_refused_where_it_is_asked(thread: EngineThread) -> None:
    with pytest.raises(ContextOverflowError, match="600 tokens"):
        thread.submit(greedy(prompt(600, 0), 1))
    with pytest.raises(RequestError, match="the vocabulary has"):
        thread.submit(greedy([10**6], 1))


def test_a_full_queue_refuses(tiny_model: TinyModel) -> None:
    limits = SchedulerLimits(max_running=1, max_waiting=0)
    with EngineThread(Engine.load(tiny_model("llama-moe"), EXACT), limits) as thread, pytest.raises(BusyError):
        thread.submit(greedy(prompt(10, 0), 3))


def test_an_error_of_one_request_reaches_its_client_alone(thread: EngineThread) -> None:
    vocab_size = thread.engine.tokenizer.vocab_size
    nothing_left = SamplingConfig(logit_bias=tuple((i, -np.inf) for i in range(vocab_size)))
    good = thread.submit(greedy(prompt(10, 0), 20))
    bad = thread.submit(Request((1, 2, 3), nothing_left))
    with pytest.raises(RequestError, match="bans every token"):
        list(bad)
    assert len(ids_of(list(good))) == 20


def test_closing_lets_running_answers_end_if_there_is_time(tiny_model: TinyModel) -> None:
    thread = EngineThread(Engine.load(tiny_model("llama-moe"), EXACT))
    stream = thread.submit(greedy(prompt(10, 0), 50))
    thread.close(finish_seconds=60)
    assert len(ids_of(list(stream))) == 50
    with pytest.raises(StoppingError, match="takes no more requests"):
        thread.submit(greedy(prompt(10, 0), 3))


def test_closing_at_once_tells_those_who_still_wait(tiny_model: TinyModel) -> None:
    thread = EngineThread(Engine.load(tiny_model("llama-moe"), EXACT))
    streams = [thread.submit(greedy(prompt(100, seed), 400)) for seed in range(4)]
    thread.close()
    thread.close()
    for stream in streams:
        with pytest.raises(StoppingError, match="stopped before the answer was done"):
            list(stream)


def test_a_thread_that_breaks_says_so_to_everyone(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = EngineThread(Engine.load(tiny_model("llama-moe"), EXACT))
    monkeypatch.setattr(thread._scheduler, "step", lambda: 1 / 0)
    stream = thread.submit(greedy(prompt(10, 0), 5))
    with pytest.raises(StoppingError, match="ZeroDivisionError"):
        list(stream)
    wait_until(lambda: isinstance(thread.failure, ZeroDivisionError))
    with pytest.raises(StoppingError):
        thread.submit(greedy(prompt(10, 0), 5))
    thread.close()


def test_a_folder_that_another_uses_is_a_clear_refusal(tiny_model: TinyModel, tmp_path: Path) -> None:
    limits = CacheLimits(disk_bytes=1000, disk_folder=tmp_path)
    with (
        EngineThread(Engine.load(tiny_model("llama-moe"), EXACT), None, limits),
        Engine.load(tiny_model("llama-moe"), EXACT) as second,
        pytest.raises(ResourceError, match="in use by another ktdesk"),
    ):
        EngineThread(second, None, limits)
