"""Requests join, answer, leave, and are never in each other's way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_runner import POISON, answer_to
from scheduling import Office

from ktdesk_engine.config import SamplingConfig
from ktdesk_engine.errors import BusyError, ContextOverflowError, DeadlineError, EngineError, RequestError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kv_cache import PAGE_SIZE
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.tokenizer.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Callable[[str], Path]) -> Tokenizer:
    with GGUFFile.open(tiny_model("qwen3")) as file:
        return Tokenizer.from_gguf(file)


def prompt(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 250, length).tolist()


def test_an_answer_is_what_the_model_says_and_its_last_event_says_what_it_took(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, largest_chunk=100)
    client = office.ask(prompt(250), num_tokens=5)
    office.run()
    assert client.token_ids == answer_to(client.prompt, 5)
    assert office.runner.chunks == [(0, 100), (100, 100), (200, 50)]
    timings = client.events[-1].timings
    assert timings is not None
    assert (timings.num_prompt_tokens, timings.num_answer_tokens, timings.num_cached_tokens) == (250, 5, 0)
    assert timings.prefill_seconds == pytest.approx(3 * 0.02 + 250 * 0.001)
    assert timings.decode_seconds == pytest.approx(4 * 0.03)
    office.check_empty()


def test_those_who_answer_are_computed_together(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    clients = [office.ask(prompt(20, seed), num_tokens=10) for seed in range(3)]
    office.run()
    assert max(office.runner.batches) == 3
    for client in clients:
        assert client.token_ids == answer_to(client.prompt, 10)
    office.check_empty()


def test_first_come_is_first_served(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_running=2))
    clients = [office.ask(prompt(100, seed), num_tokens=6) for seed in range(5)]
    office.run()
    firsts = [client.times[0] for client in clients]
    assert firsts == sorted(firsts)
    assert max(office.runner.batches) == 2


def test_a_prompt_that_was_computed_is_not_computed_again(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    text = prompt(300)
    office.ask(text, num_tokens=2)
    office.run()
    office.runner.chunks.clear()
    again = office.ask(text, num_tokens=2)
    longer = office.ask([*text, *prompt(10, 1)], num_tokens=2)
    office.run()
    assert office.runner.chunks[0] == (256, 44)
    assert again.token_ids == answer_to(text, 2)
    assert longer.token_ids == answer_to(longer.prompt, 2)
    timings = again.events[-1].timings
    assert timings is not None
    assert timings.num_cached_tokens == 256
    stats = office.scheduler.stats()
    assert stats.counters.num_cached_tokens == 512
    assert stats.cache.num_hit_pages.pool == 8


def test_a_prompt_of_whole_pages_still_computes_its_last_token(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    text = prompt(4 * PAGE_SIZE)
    for _ in range(2):
        client = office.ask(text, num_tokens=3)
        office.run()
        assert client.token_ids == answer_to(text, 3)
    assert office.runner.chunks[-1] == (3 * PAGE_SIZE, PAGE_SIZE)


def test_an_answer_is_cached_for_the_turn_after_it(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    first = office.ask(prompt(100), num_tokens=100)
    office.run()
    second = office.ask([*first.prompt, *first.token_ids, *prompt(20, 5)], num_tokens=3)
    office.run()
    assert office.runner.chunks[-1][0] == 192
    assert second.token_ids == answer_to(second.prompt, 3)


def test_the_same_prompt_at_the_same_time_is_computed_once(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    clients = [office.ask(prompt(200), num_tokens=4) for _ in range(3)]
    office.run()
    assert sum(count for _, count in office.runner.chunks) == 200 + 2 * (200 - 192)
    assert all(client.token_ids == answer_to(client.prompt, 4) for client in clients)
    office.check_empty()


@pytest.mark.parametrize("pair_seconds", [0.0, 4e-7])
@pytest.mark.parametrize("fixed_seconds", [0.0, 0.15])
def test_those_who_answer_never_wait_longer_than_they_should(
    tokenizer: Tokenizer, fixed_seconds: float, pair_seconds: float
) -> None:
    office = Office(tokenizer, num_pages=200, limits=SchedulerLimits(max_stall_ms=500), largest_chunk=1024)
    office.runner.fixed_seconds, office.runner.pair_seconds = fixed_seconds, pair_seconds
    clients = [office.ask(prompt(50), num_tokens=400)]
    while len(clients[0].events) < 3:
        office.scheduler.step()
    clients += [office.ask(prompt(3000, seed), num_tokens=100) for seed in range(1, 3)]
    office.run()
    assert max(max(client.stalls) for client in clients) <= 0.5
    assert max(count for _, count in office.runner.chunks[1:]) > 100
    assert office.scheduler.stats().counters.longest_stall_seconds <= 0.5


def test_a_prompt_is_done_however_little_time_there_is(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_stall_ms=1))
    office.ask(prompt(10), num_tokens=100)
    office.scheduler.step()
    second = office.ask(prompt(80, 1), num_tokens=2)
    office.run()
    assert second.token_ids == answer_to(second.prompt, 2)
    assert [count for _, count in office.runner.chunks[1:]] == [8] * 10


@pytest.mark.parametrize("after_steps", [0, 1, 3])
def test_who_leaves_frees_its_place_within_a_step(tokenizer: Tokenizer, after_steps: int) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_running=1), largest_chunk=64)
    leaving = office.ask(prompt(150), num_tokens=50)
    staying = office.ask(prompt(150, 1), num_tokens=3)
    for _ in range(after_steps):
        office.scheduler.step()
    office.cancel(leaving)
    office.scheduler.step()
    num_events = len(leaving.events)
    office.run()
    assert len(leaving.events) == num_events
    assert staying.token_ids == answer_to(staying.prompt, 3)
    assert office.scheduler.stats().counters.num_cancelled == 1
    office.check_empty()


@pytest.mark.parametrize("has_deadline", [False, True])
def test_who_leaves_within_a_chunk_ends_it_and_keeps_what_was_before(tokenizer: Tokenizer, has_deadline: bool) -> None:
    office = Office(tokenizer, largest_chunk=128)
    answering = office.ask(prompt(10, 1), num_tokens=60)
    office.scheduler.step()
    leaving = office.ask(prompt(600), num_tokens=5, deadline_seconds=0.5 if has_deadline else None)
    office.runner.token_seconds = 0.01  # a chunk takes longer than that

    def leave_in_the_second_chunk() -> None:
        if not has_deadline and len(office.runner.chunks) == 3:
            office.cancel(leaving)

    office.runner.on_layer = leave_in_the_second_chunk
    office.run()
    assert not leaving.events
    assert [type(error) for error in leaving.errors] == ([DeadlineError] if has_deadline else [])
    assert answering.token_ids == answer_to(answering.prompt, 60)
    counters = office.scheduler.stats().counters
    assert (counters.num_cancelled, counters.num_expired) == ((0, 1) if has_deadline else (1, 0))
    office.check_empty()
    num_tokens = sum(count for _, count in office.runner.chunks[1:])
    office.runner.chunks.clear()
    again = office.ask(leaving.prompt, num_tokens=3)
    office.run()
    assert again.token_ids == answer_to(again.prompt, 3)
    assert office.runner.chunks[0][0] < num_tokens  # what was left was never kept


def test_a_receiver_that_fails_is_one_that_left(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    office.ask(prompt(20), num_tokens=50)
    other = office.ask(prompt(20, 1), num_tokens=5)

    def broken(_: object) -> None:
        raise RuntimeError("the loop is closed")

    office.clients[0][1].deliver = broken
    office.run()
    assert office.scheduler.stats().counters.num_cancelled == 1
    assert other.token_ids == answer_to(other.prompt, 5)
    office.check_empty()


def test_a_request_that_cannot_be_computed_ends_alone(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    others = [office.ask(prompt(70, 1), num_tokens=9)]
    bad = office.ask([*prompt(70, 2), POISON], num_tokens=9)
    others.append(office.ask(prompt(70, 3), num_tokens=9))
    office.run()
    assert [type(error) for error in bad.errors] == [EngineError]
    assert all(other.token_ids == answer_to(other.prompt, 9) for other in others)
    office.check_empty()


def test_a_request_that_fails_while_all_are_computed_together_ends_alone(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    poisoned = SamplingConfig(temperature=0, logit_bias=((POISON, 1000.0),))
    others = [office.ask(prompt(63, 1), num_tokens=9)]
    bad = office.ask(prompt(63, 2), num_tokens=9, sampling=poisoned)
    others.append(office.ask(prompt(63, 3), num_tokens=9))
    office.run()
    assert (bad.token_ids, [type(error) for error in bad.errors]) == ([POISON], [EngineError])
    assert all(other.token_ids == answer_to(other.prompt, 9) for other in others)
    office.check_empty()


def test_a_request_whose_choice_fails_ends_alone(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer)
    nothing_left = SamplingConfig(temperature=0, logit_bias=tuple((i, -np.inf) for i in range(256)))
    bad = office.ask(prompt(20), num_tokens=9, sampling=nothing_left)
    other = office.ask(prompt(20, 1), num_tokens=9)
    office.run()
    assert [type(error) for error in bad.errors] == [RequestError]
    assert other.token_ids == answer_to(other.prompt, 9)
    office.check_empty()


def test_where_pages_run_out_the_youngest_waits_and_loses_no_token(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, num_pages=7)
    clients = [office.ask(prompt(100, seed), num_tokens=300) for seed in range(3)]
    office.run()
    for client in clients:
        assert client.token_ids == answer_to(client.prompt, 300)
    counters = office.scheduler.stats().counters
    assert counters.num_preempted > 0
    assert counters.num_prompt_tokens == 300
    ends = [client.times[-1] for client in clients]
    assert ends == sorted(ends)
    office.check_empty()


def test_what_can_never_fit_is_refused_at_once(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, num_pages=2)
    with pytest.raises(ContextOverflowError, match="may have 130 tokens, but the cache holds 128"):
        office.ask(prompt(100), num_tokens=30)
    client = office.ask(prompt(100), num_tokens=28)
    office.run()
    assert client.token_ids == answer_to(client.prompt, 28)


def test_a_full_queue_refuses_with_a_time(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_running=1, max_waiting=2))
    for seed in range(2):
        office.ask(prompt(50, seed))
    with pytest.raises(BusyError, match="2 requests are waiting") as caught:
        office.ask(prompt(50, 2))
    assert caught.value.retry_after_seconds >= 1
    office.scheduler.step()
    office.ask(prompt(50, 3))
    assert office.scheduler.stats().counters.num_refused == 1


def test_who_would_wait_too_long_is_refused_and_who_has_its_prompt_cached_is_not(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_wait_seconds=1))
    office.runner.fixed_seconds = 0.0
    office.ask(prompt(900), num_tokens=2)
    office.run()
    with pytest.raises(BusyError, match=r"would take 2 s, and 1 s are allowed: come back in 1 s") as caught:
        office.ask(prompt(2000, 1), num_tokens=2)
    assert caught.value.retry_after_seconds == pytest.approx(1.0, abs=0.1)
    office.ask([*prompt(900), *prompt(700, 2)], num_tokens=2)


def test_a_deadline_ends_a_request_wherever_it_is(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_running=1))
    running = office.ask(prompt(50), num_tokens=1000, deadline_seconds=3.0)
    waiting = office.ask(prompt(50, 1), num_tokens=10, deadline_seconds=1.0)
    patient = office.ask(prompt(50, 2), num_tokens=10)
    office.run()
    assert [type(error) for error in running.errors + waiting.errors] == [DeadlineError] * 2
    assert running.times[-1] - 100 == pytest.approx(3.0, abs=0.1)
    assert waiting.times[-1] - 100 == pytest.approx(1.0, abs=0.1)
    assert patient.token_ids == answer_to(patient.prompt, 10)
    office.check_empty()


def test_a_pinned_beginning_stays_cached(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, num_pages=12)
    system = prompt(130)
    office.ask([*system, *prompt(50, 1)], num_tokens=2, num_pinned_tokens=len(system))
    office.run()
    for seed in range(2, 6):
        office.ask(prompt(600, seed), num_tokens=2)
        office.run()
    office.runner.chunks.clear()
    office.ask([*system, *prompt(50, 9)], num_tokens=2)
    office.run()
    assert office.runner.chunks[0][0] == 128


def test_all_are_told_when_the_engine_ends(tokenizer: Tokenizer) -> None:
    office = Office(tokenizer, limits=SchedulerLimits(max_running=2), largest_chunk=64)
    clients = [office.ask(prompt(150, seed), num_tokens=50) for seed in range(4)]
    for _ in range(4):
        office.scheduler.step()
    reason = RuntimeError("over")
    office.scheduler.dismiss_all(reason)
    assert all(client.errors == [reason] for client in clients)
    assert not office.scheduler.has_work
    office.check_empty()


@pytest.mark.parametrize("seed", range(8))
def test_no_company_and_no_cache_changes_a_token_and_no_page_is_lost(
    tokenizer: Tokenizer, seed: int, tmp_path: Path
) -> None:
    """Requests with much in common join, leave and time out at random, with too few pages, host memory and disk."""
    rng = random.Random(seed)
    with DiskStore(tmp_path, bytes(20), rng.randint(0, 20_000)) as disk:
        office = Office(
            tokenizer,
            num_pages=rng.randint(10, 40),
            limits=SchedulerLimits(max_running=rng.randint(1, 16), max_waiting=1000),
            largest_chunk=rng.choice([7, 64, 300]),
            ram_bytes=rng.randint(0, 20) * 256,
            disk=disk,
        )
        office.runner.pair_seconds = 1e-6
        for _ in range(300):
            _random_act(office, rng)
            office.scheduler.step()
            office.check()
        office.run()
        office.check_empty()
        for client, job in office.clients:
            assert client.token_ids == answer_to(client.prompt, len(client.token_ids))
            assert client.is_done or job.is_cancelled
        assert sum(client.is_done for client, _ in office.clients) > 20


def _random_act(office: Office, rng: random.Random) -> None:
    act = rng.random()
    if act < 0.2:
        beginning = prompt(rng.choice([0, 64, 130, 256]), rng.randint(0, 2))
        text = beginning + prompt(rng.randint(1, 150), rng.randint(3, 1000))
        deadline = 5.0 if rng.random() < 0.1 else None
        office.ask(text, rng.randint(1, 150), deadline_seconds=deadline, num_pinned_tokens=rng.choice([0, 0, 64]))
    elif act < 0.25 and office.clients:
        office.cancel(rng.choice(office.clients)[0])
