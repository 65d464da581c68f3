"""The probes measure what they say, and nothing of it is left out. How fast a machine is, no test asks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import WorkerPool
from ktdesk_engine.kernels.probes import probe_peak, probe_read, touch

PEAKS = ("int8", "float32")
PERIOD = 32
"""Rounds after which the operands come round again."""


@pytest.fixture(params=kernels.isas(with_variants=True))
def pool(request: pytest.FixtureRequest) -> WorkerPool:
    return kernels.worker_pool(2, request.param)


def tasks_of(pool: WorkerPool) -> int:
    """Into so many parts a probe of the peak is cut."""
    return 16 * pool.num_threads


def test_reading_gives_a_plausible_bandwidth(pool: WorkerPool) -> None:
    data = np.ones(1 << 22, np.uint8)
    probe = probe_read(pool, data)
    assert probe.amount == data.nbytes
    assert math.isfinite(probe.rate)
    assert 0 < probe.rate < 1e14


@pytest.mark.parametrize("num_bytes", [256, 4096, (1 << 21) - 256, (1 << 21) + 256, 3 << 20])
def test_every_byte_is_read(pool: WorkerPool, num_bytes: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, num_bytes, dtype=np.uint8)
    before = probe_read(pool, data).checksum
    assert probe_read(pool, data).checksum == before
    for place in (0, 63, 64, 255, num_bytes // 2, num_bytes - 1):
        data[place] ^= 1
        assert probe_read(pool, data).checksum != before
        data[place] ^= 1


@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_sum_does_not_depend_on_the_threads(num_threads: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 5 << 20, dtype=np.uint8)
    checksums = {probe_read(kernels.worker_pool(n), data).checksum for n in (2, num_threads)}
    assert len(checksums) == 1


@pytest.mark.parametrize("name", PEAKS)
def test_a_peak_gives_a_plausible_rate(pool: WorkerPool, name: str) -> None:
    probe = probe_peak(pool, name, 4096)
    assert math.isfinite(probe.rate)
    assert 0 < probe.rate < 1e16
    assert math.isfinite(probe.checksum)


@pytest.mark.parametrize("name", PEAKS)
def test_operations_are_counted_by_the_round(pool: WorkerPool, name: str) -> None:
    once = probe_peak(pool, name, tasks_of(pool)).amount
    assert once / tasks_of(pool) % 2 == 0  # a multiplication and an addition
    assert probe_peak(pool, name, 10 * tasks_of(pool)).amount == 10 * once
    assert probe_peak(pool, name, 10 * tasks_of(pool) + 1).amount == 11 * once  # each part does one more


def test_every_round_multiplies_bytes(pool: WorkerPool) -> None:
    """Twice the rounds, twice the sums: exactly, in integers of 32 bits."""
    num_rounds = PERIOD * tasks_of(pool)
    once, twice = (int(probe_peak(pool, "int8", times * num_rounds).checksum) for times in (1, 2))
    assert once % 2**32 != 0
    assert twice % 2**32 == 2 * once % 2**32


def test_every_round_multiplies_floats(pool: WorkerPool) -> None:
    num_rounds = PERIOD * tasks_of(pool)
    once, twice = (probe_peak(pool, "float32", times * num_rounds).checksum for times in (1, 2))
    assert once != 0
    assert twice == pytest.approx(2 * once, rel=1e-3)


def test_touching_writes_to_every_page() -> None:
    data = np.full(5 * 4096 + 17, 255, np.uint8)
    touch(kernels.worker_pool(2), data)
    assert data[::4096].tolist() == [0, 1, 2, 3, 4, 5]
    assert (data[1:4096] == 255).all()


def test_what_cannot_be_probed_is_refused() -> None:
    pool = kernels.worker_pool(1)
    with pytest.raises(ValueError, match="256"):
        probe_read(pool, np.zeros(257, np.uint8))
    with pytest.raises(ValueError, match="no loop"):
        probe_peak(pool, "int3", 1)
    with pytest.raises(ValueError, match="rounds"):
        probe_peak(pool, "int8", 0)
