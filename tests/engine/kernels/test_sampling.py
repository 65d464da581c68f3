"""The choice among a vocabulary: against numpy, over odd sizes."""

from __future__ import annotations

import numpy as np
import pytest

from ktdesk_engine.kernels import reference
from ktdesk_engine.kernels.sampling import all_finite, top_k

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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", SIZES)
def test_one_value_that_is_not_finite_is_seen_wherever_it_stands(size: int, bad: float) -> None:
    for place in {0, size // 2, size - 1}:
        values = np.full((2, size), 3.4e38, np.float32)
        assert all_finite(values)
        values[1, place] = bad
        assert not all_finite(values)


def test_columns_that_are_left_out_are_not_looked_at() -> None:
    values = np.zeros((3, 10), np.float32)
    values[:, 7] = np.nan
    assert all_finite(values[:, :7])
    assert not all_finite(values[:, :8])
