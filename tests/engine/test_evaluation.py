"""Divergence, perplexity and agreement, on vocabularies of three tokens that can be followed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ktdesk_engine.config import EngineConfig
from ktdesk_engine.engine import Engine
from ktdesk_engine.evaluation import (
    ROWS_AT_ONCE,
    WindowResult,
    compare,
    evaluate,
    fold,
    kl_divergence,
    standard_error,
    windows_of,
)
from ktdesk_engine.kernels import Floats

HALF_FIRST = (0.5, 0.25, 0.25)
HALF_SECOND = (0.25, 0.5, 0.25)
LN2 = math.log(2)


def log(*rows: Sequence[float]) -> Floats:
    return np.log(np.array(rows, np.float32))


def result(kl: Sequence[float], num_agreeing: int = 0, reference_nll: float = 0, tested_nll: float = 0) -> WindowResult:
    return WindowResult(np.array(kl), num_agreeing, len(kl) - 1, reference_nll, tested_nll)


def test_the_divergence_is_that_of_the_tested_from_the_reference() -> None:
    # 1/2 ln(1/2 / 1/4) + 1/4 ln(1/4 / 1/2) + 1/4 ln 1
    np.testing.assert_allclose(kl_divergence(log(HALF_FIRST), log(HALF_SECOND)), [LN2 / 4], rtol=1e-6)


def test_the_divergence_is_not_the_same_the_other_way_round() -> None:
    third = (1 / 3, 1 / 3, 1 / 3)
    there = kl_divergence(log(HALF_FIRST), log(third))
    back = kl_divergence(log(third), log(HALF_FIRST))
    np.testing.assert_allclose(there, [math.log(3) - 1.5 * LN2], rtol=1e-6)
    np.testing.assert_allclose(back, [5 / 3 * LN2 - math.log(3)], rtol=1e-6)


def test_what_is_impossible_adds_nothing_to_the_divergence() -> None:
    impossible = np.array([[math.log(0.5), math.log(0.5), -1e30]], np.float32)
    np.testing.assert_allclose(kl_divergence(impossible, log(HALF_FIRST)), [LN2 / 2], rtol=1e-6)


def test_rounded_log_probabilities_do_not_give_a_divergence_of_their_own() -> None:
    drifted = log(HALF_FIRST) + np.float32(1e-6)
    assert kl_divergence(log(HALF_FIRST), drifted)[0] < 1e-13


def test_a_window_counts_what_both_ways_say_of_each_token() -> None:
    reference = log(HALF_FIRST, HALF_FIRST, HALF_SECOND)
    tested = log(HALF_FIRST, HALF_SECOND, HALF_SECOND)
    window = compare(reference, tested, [2, 0, 1])
    np.testing.assert_allclose(window.kl, [0, LN2 / 4, 0], rtol=1e-6)
    assert (window.num_positions, window.num_predicted, window.num_agreeing) == (3, 2, 2)
    assert window.reference_nll == pytest.approx(1 * LN2 + 2 * LN2)  # token 0 has 1/2, then token 1 has 1/4
    assert window.tested_nll == pytest.approx(1 * LN2 + 1 * LN2)


def test_more_rows_than_are_compared_at_once_give_each_its_own_divergence() -> None:
    num_rows = 2 * ROWS_AT_ONCE + 3
    tested = [HALF_SECOND if row % 5 == 0 else HALF_FIRST for row in range(num_rows)]
    window = compare(log(*[HALF_FIRST] * num_rows), log(*tested), [0] * num_rows)
    np.testing.assert_allclose(window.kl, [LN2 / 4 if row % 5 == 0 else 0 for row in range(num_rows)], rtol=1e-6)


def test_windows_are_folded_position_by_position() -> None:
    # Window means 0.2 and 0.5, but there are 3 positions in the first and 2 in the second: 1.6 / 5.
    quality = fold([result([0.0, 0.2, 0.4], 3, 2 * LN2, 4 * LN2), result([0.4, 0.6], 1, 4 * LN2, 5 * LN2)])
    assert (quality.num_windows, quality.num_positions, quality.num_predicted) == (2, 5, 3)
    assert quality.mean_kl == pytest.approx(0.32)
    assert quality.max_kl == 0.6
    assert quality.p99_kl == pytest.approx(0.4 + 0.96 * 0.2)  # 0.99 * 4 = 3.96 steps up the five sorted values
    assert quality.top1 == 4 / 5
    assert quality.reference_perplexity == pytest.approx(4)  # 2 ** (6 / 3)
    assert quality.perplexity == pytest.approx(8)  # 2 ** (9 / 3)


def test_the_standard_error_of_equal_windows_is_that_of_their_means() -> None:
    means = np.array([0.1, 0.4, 0.7])
    assert standard_error(means * 10, np.array([10, 10, 10])) == pytest.approx(0.3 / math.sqrt(3))


def test_a_short_window_weighs_less_in_the_standard_error() -> None:
    # Mean 1 of 4 positions; residuals 3 - 3 and 1 - 1 are none. Then mean 1, residuals 1 and -1: sqrt(2 * 2) / 4.
    assert standard_error(np.array([3.0, 1.0]), np.array([3, 1])) == 0
    assert standard_error(np.array([4.0, 0.0]), np.array([3, 1])) == pytest.approx(0.5)


def test_one_window_alone_has_no_standard_error() -> None:
    quality = fold([result([0.1, 0.2])])
    assert quality.mean_kl_error is None
    assert quality.top1_error is None


def test_a_perplexity_beyond_all_numbers_is_infinite() -> None:
    quality = fold([result([0.0, 0.0], reference_nll=2.0, tested_nll=1e4)])
    assert quality.perplexity == math.inf
    assert quality.reference_perplexity == pytest.approx(math.e**2)


def test_the_text_is_cut_without_loss_or_overlap() -> None:
    assert windows_of(range(7), 3, None) == [(0, 1, 2), (3, 4, 5), (6,)]


def test_each_window_begins_with_the_bos_that_the_model_asks_for() -> None:
    assert windows_of(range(5), 3, 99) == [(99, 0, 1), (99, 2, 3), (99, 4)]


def test_one_window_is_scored_at_a_time_in_both_ways() -> None:
    calls: list[tuple[str, int]] = []

    def scoring(name: str, row: Sequence[float]) -> Callable[[Sequence[int]], Floats]:
        def score(token_ids: Sequence[int]) -> Floats:
            calls.append((name, len(token_ids)))
            return log(*[row] * len(token_ids))

        return score

    results = evaluate(scoring("exact", HALF_FIRST), scoring("tested", HALF_SECOND), [(0, 1), (0, 1, 2)])
    assert calls == []
    assert next(results).num_agreeing == 0
    assert calls == [("exact", 2), ("tested", 2)]
    assert [left.num_positions for left in results] == [3]


def test_an_engine_is_not_apart_from_itself(tiny_model: Callable[[str], Path]) -> None:
    with Engine.load(tiny_model("llama-moe"), EngineConfig(num_threads=1)) as engine:
        windows = windows_of(range(150), 64, None)
        quality = fold(list(evaluate(engine.score, engine.score, windows)))
    assert (quality.mean_kl, quality.p99_kl, quality.max_kl) == (0, 0, 0)
    assert quality.mean_kl_error == 0
    assert quality.top1 == 1
    assert quality.perplexity == quality.reference_perplexity
