"""Waits that can be checked by hand, and against what happens then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scheduling import Office

from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.scheduler.cost import Cost
from ktdesk_engine.scheduler.forecast import ExpectedPrompt, Load, Speeds, predicted_wait
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

PROMPT = ExpectedPrompt(num_tokens=90, position=0, num_answer_tokens=10)
SPEEDS = Speeds(prefill=Cost(per_token=0.01), decode=Cost(fixed=0.1), max_stall_seconds=0.5, largest_chunk=1000)
"""Beside streams 0.4 s are planned with; 0.1 of them is their step's, so a chunk has 30 tokens."""


def wait(streams: Sequence[int] = (), prompts: Sequence[ExpectedPrompt] = (), max_running: int = 4) -> float:
    return predicted_wait(Load(tuple(streams), tuple(prompts)), PROMPT, SPEEDS, max_running)


def test_alone_it_waits_for_its_own_prompt() -> None:
    assert wait() == pytest.approx(0.9)


def test_what_is_cached_takes_no_time() -> None:
    cached = ExpectedPrompt(num_tokens=10, position=80, num_answer_tokens=10)
    assert predicted_wait(Load(), cached, SPEEDS, 4) == pytest.approx(0.1)


def test_a_fixed_cost_is_paid_for_each_chunk() -> None:
    speeds = Speeds(Cost(fixed=0.1, per_token=0.01), Cost(), max_stall_seconds=0.5, largest_chunk=45)
    assert predicted_wait(Load(), PROMPT, speeds, 4) == pytest.approx(2 * 0.1 + 0.9)


def test_beside_streams_it_gets_the_time_that_they_leave() -> None:
    assert wait(streams=[100]) == pytest.approx(3 * (0.3 + 0.1))


def test_a_stream_that_ends_before_slows_it_no_more() -> None:
    assert wait(streams=[1]) == pytest.approx(0.4 + 0.6)


def test_where_no_place_is_free_it_waits_for_the_first_to_end() -> None:
    assert wait(streams=[10, 200], max_running=2) == pytest.approx(10 * 0.1 + 3 * 0.4)


def test_prompts_before_it_come_first_and_then_answer() -> None:
    assert wait(prompts=[PROMPT]) == pytest.approx(0.9 + 3 * 0.4)
    assert wait(prompts=[PROMPT], max_running=1) == pytest.approx(0.9 + 10 * 0.1 + 0.9)


def test_before_anything_was_measured_nobody_is_told_to_wait() -> None:
    speeds = Speeds(Cost(), Cost(), max_stall_seconds=0.5, largest_chunk=100)
    assert predicted_wait(Load((1000,), (PROMPT,) * 9), PROMPT, speeds, 1) == 0


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Callable[[str], Path]) -> Tokenizer:
    with GGUFFile.open(tiny_model("qwen3")) as file:
        return Tokenizer.from_gguf(file)


@pytest.mark.parametrize("max_running", [1, 2, 8])
@pytest.mark.parametrize("num_before", [0, 1, 3, 6])
def test_a_predicted_wait_is_near_the_real_one(tokenizer: Tokenizer, num_before: int, max_running: int) -> None:
    def prompt(seed: int) -> list[int]:
        return np.random.default_rng(seed).integers(0, 250, 700).tolist()

    limits = SchedulerLimits(max_running=max_running)
    office = Office(tokenizer, num_pages=400, limits=limits, largest_chunk=256)
    for seed in range(100, 106):
        office.ask(prompt(seed), num_tokens=40)
    office.run()
    for seed in range(num_before):
        office.ask(prompt(seed), num_tokens=40)
    for _ in range(5):
        office.scheduler.step()
    last, job = office.prepare(prompt(99), num_tokens=40)
    predicted, started = office.scheduler.predicted_wait(job), office.clock.now
    office.scheduler.add(job)
    office.run()
    assert predicted == pytest.approx(last.times[0] - started, rel=0.3)
