"""The time that a measurement has, by a clock that only goes when it is told to."""

from __future__ import annotations

from ktdesk_engine.benchmark.time_limit import TimeLimit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def turns_of(limit: TimeLimit, clock: Clock, usual: int, num_parts: int, seconds: float) -> int:
    """That are taken where each takes so long."""
    count = 0
    for _ in limit.turns(usual, num_parts):
        clock.now += seconds
        count += 1
    return count


def test_where_there_is_time_all_turns_are_taken() -> None:
    clock = Clock()
    limit = TimeLimit(10, clock)
    assert turns_of(limit, clock, 7, 2, 0.5) == 7
    assert turns_of(limit, clock, 7, 1, 0.5) == 7
    assert (limit.share, limit.is_over) == (1.0, False)


def test_a_part_takes_its_share_of_the_time_and_leaves_what_it_does_not_need() -> None:
    clock = Clock()
    limit = TimeLimit(10, clock)
    assert turns_of(limit, clock, 7, 2, 1) == 5, "a half of ten seconds"
    assert turns_of(limit, clock, 2, 2, 1) == 2
    assert turns_of(limit, clock, 7, 1, 1) == 3, "all that is left"
    assert limit.is_over
    assert limit.share == 10 / 16


def test_one_turn_is_taken_whatever_it_takes() -> None:
    clock = Clock()
    limit = TimeLimit(10, clock)
    assert turns_of(limit, clock, 7, 2, 60) == 1
    assert limit.is_over


def test_without_a_limit_there_is_always_time() -> None:
    clock = Clock()
    limit = TimeLimit(clock=clock)
    assert turns_of(limit, clock, 3, 50, 1e9) == 3
