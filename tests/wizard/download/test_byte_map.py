"""Intervals against a plain set of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ktdesk_wizard.download.byte_map import ByteMap, Interval

SIZE = 40
Steps = list[tuple[bool, int, int]]
steps = st.lists(st.tuples(st.booleans(), st.integers(0, SIZE), st.integers(0, SIZE)), max_size=30)


def made(sequence: Steps) -> tuple[ByteMap, set[int]]:
    """After adding and removing, and what is in it."""
    intervals, numbers = ByteMap(), set[int]()
    for is_added, start, end in sequence:
        if is_added:
            intervals.add(start, end)
            numbers |= set(range(start, end))
        else:
            intervals.remove(start, end)
            numbers -= set(range(start, end))
    return intervals, numbers


@given(steps)
def test_it_holds_what_was_added_and_not_removed(sequence: Steps) -> None:
    intervals, numbers = made(sequence)
    assert {number for start, end in intervals for number in range(start, end)} == numbers
    assert intervals.num_bytes == len(numbers)
    assert bool(intervals) == bool(numbers)


@given(steps)
def test_intervals_are_in_order_and_do_not_touch(sequence: Steps) -> None:
    found = list(made(sequence)[0])
    assert all(interval.num_bytes > 0 for interval in found)
    assert all(left.end < right.start for left, right in pairwise(found))


@given(steps, st.integers(0, SIZE), st.integers(0, SIZE))
def test_it_finds_what_follows_a_position_and_what_is_covered(sequence: Steps, start: int, end: int) -> None:
    intervals, numbers = made(sequence)
    following = intervals.at_or_after(start)
    assert (None if following is None else following.start) == min((n for n in numbers if n >= start), default=None)
    assert intervals.covers(start, end) == (set(range(start, end)) <= numbers)


def test_neighbours_become_one() -> None:
    assert list(ByteMap([(0, 4), (8, 12), (4, 8)])) == [Interval(0, 12)]
