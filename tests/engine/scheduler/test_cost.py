"""What is learned from measured steps."""

from __future__ import annotations

import pytest

from ktdesk_engine.scheduler.cost import NUM_STEPS, Cost, CostMeter
from ktdesk_engine.scheduler.pace import Pace


def meter(true_cost: Cost, steps: list[tuple[int, int]]) -> CostMeter:
    learned = CostMeter()
    for num_tokens, position in steps:
        learned.observe(num_tokens, position, true_cost.seconds(num_tokens, position))
    return learned


def test_all_that_steps_tell_apart_is_learned() -> None:
    true_cost = Cost(fixed=0.05, per_token=0.002, per_pair=1e-6)
    learned = meter(true_cost, [(16, 0), (64, 16), (256, 80), (256, 1000), (100, 3000)])
    assert learned.cost.seconds(500, 5000) == pytest.approx(true_cost.seconds(500, 5000))
    assert learned.cost.fixed == pytest.approx(0.05)


def test_steps_of_one_size_say_only_what_a_token_takes() -> None:
    learned = meter(Cost(fixed=1.0, per_token=0.01), [(100, 0), (100, 100)])
    assert learned.cost == Cost(per_token=pytest.approx(0.02))


def test_noise_never_makes_a_term_negative() -> None:
    learned = CostMeter()
    for num_tokens, position, seconds in [(10, 0, 0.3), (100, 0, 0.2), (50, 5000, 0.1), (200, 9000, 0.25)]:
        learned.observe(num_tokens, position, seconds)
        assert min(learned.cost.fixed, learned.cost.per_token, learned.cost.per_pair) >= 0
        assert learned.cost.seconds(10) > 0


def test_what_was_long_ago_is_forgotten() -> None:
    learned = meter(Cost(per_token=1.0), [(10, 0)] * 5)
    for _ in range(NUM_STEPS):
        learned.observe(10, 0, 0.1)
    assert learned.cost.seconds(10) == pytest.approx(0.1)


def test_the_largest_step_is_the_one_that_just_fits() -> None:
    cost = Cost(fixed=0.1, per_token=0.01)
    assert cost.largest_step(0.601, 0, most=1000) == 50
    assert cost.largest_step(0.6, 0, most=20) == 20
    assert cost.largest_step(0.05, 0, most=20) == 0


def test_chunks_beside_streams_grow_from_small_ones_and_shrink_when_one_took_too_long() -> None:
    pace, sizes = Pace(max_stall_seconds=1.0, largest_chunk=512), []
    pace.decoded(1, 0.1)
    for _ in range(5):
        sizes.append(pace.chunk(0, 1, pace.seconds_left(1, waited_seconds=0.0)))
        pace.prefilled(sizes[-1], 0, 1, 0.001 * sizes[-1])
    assert sizes == [8, 16, 32, 64, 128]
    pace.prefilled(256, 0, 1, 5.0)
    assert pace.chunk(0, 1, pace.seconds_left(1, waited_seconds=0.0)) <= 128


def test_without_streams_chunks_are_as_large_as_the_runner_likes() -> None:
    assert Pace(max_stall_seconds=0.001, largest_chunk=512).chunk(0, 0, 0.0) == 512
