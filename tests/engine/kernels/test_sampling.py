"""The choice among a vocabulary: against numpy, over odd sizes."""

from __future__ import annotations

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import WorkerPool, reference
from ktdesk_engine.kernels.sampling import count_not_finite, top_k

SIZES = [1, 2, 63, 64, 65, 1000, 32003]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("k", [1, 2, 40, 100, 32003])
@pytest.mark.parametrize("digits", [0, 6])
def test_top_k_matches_reference_and_the_lower_id_comes_first_among_equals(size: int, k: int, digits: int) -> None:
    """Rounded to no digits, most values have many equals."""
    values = np.random.default_rng(size).standard_normal(size).round(digits).astype(np.float32)
    np.testing.assert_array_equal(top_k(values, min(k, size)), reference.top_k(values, min(k, size)))


@pytest.mark.parametrize("order", [1, -1])
def test_top_k_of_ordered_values(order: int) -> None:
    values = np.arange(1000, dtype=np.float32)[::order].copy()
    np.testing.assert_array_equal(top_k(values, 5), reference.top_k(values, 5))


def test_top_k_knows_infinities() -> None:
    values = np.array([-np.inf, 3, np.inf, -np.inf, 4], np.float32)
    assert top_k(values, 5).tolist() == [2, 4, 1, 0, 3]


def test_top_k_of_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="top_k"):
        top_k(np.zeros(3, np.float32), 4)


@pytest.fixture(params=[1, 3])
def pool(request: pytest.FixtureRequest) -> WorkerPool:
    return kernels.worker_pool(request.param)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", SIZES)
def test_values_that_are_not_finite_are_counted_wherever_they_stand(pool: WorkerPool, size: int, bad: float) -> None:
    values = np.full((2, size), 3.4e38, np.float32)
    assert count_not_finite(pool, values).tolist() == [0]
    for place in {0, size // 2, size - 1}:
        values[1, place] = bad
        assert count_not_finite(pool, values).tolist() == [reference.count_not_finite(values)]


def test_columns_that_are_left_out_are_not_looked_at(pool: WorkerPool) -> None:
    values = np.zeros((3, 10), np.float32)
    values[:, 7] = np.nan
    assert count_not_finite(pool, values[:, :7])[0] == 0
    assert count_not_finite(pool, values[:, :8])[0] == 3
