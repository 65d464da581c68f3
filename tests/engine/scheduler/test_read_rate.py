"""How fast steps read weights: only those count of which it is known."""

from __future__ import annotations

from ktdesk_engine.scheduler.read_rate import NUM_STEPS, ReadRate


def test_steps_that_may_share_weights_do_not_count() -> None:
    rate = ReadRate(lambda num_rows: 1000.0 if num_rows == 1 else None)
    rate.decoded(4, 0.5)
    assert rate.bytes_s is None
    rate.decoded(1, 0.5)
    rate.decoded(4, 9.0)
    rate.decoded(1, 1.5)
    assert rate.bytes_s == 1000.0


def test_only_the_last_steps_count() -> None:
    rate = ReadRate(lambda num_rows: 100.0 * num_rows)
    for _ in range(NUM_STEPS):
        rate.decoded(1, 1.0)
    assert rate.bytes_s == 100.0
    for _ in range(NUM_STEPS):
        rate.decoded(2, 0.5)
    assert rate.bytes_s == 400.0
