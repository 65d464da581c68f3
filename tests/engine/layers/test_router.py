"""Choosing experts, with numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ktdesk_engine.layers.router import Gating, RoutingRule, choose_experts

LN2 = np.log(2.0)


def logits(*row: float) -> np.ndarray:
    return np.array([row], np.float32)


def test_softmax_weights_are_probabilities_over_all_experts() -> None:
    routes = choose_experts(logits(0, LN2, 2 * LN2, 0), RoutingRule(num_experts=4, num_used=2))  # 1 : 2 : 4 : 1
    np.testing.assert_array_equal(routes.ids, [[2, 1]])
    np.testing.assert_allclose(routes.weights, [[4 / 8, 2 / 8]], rtol=1e-6)


def test_normalized_weights_add_up_to_one() -> None:
    rule = RoutingRule(num_experts=4, num_used=2, normalize=True, scale=2.5)
    routes = choose_experts(logits(0, LN2, 2 * LN2, 0), rule)
    np.testing.assert_allclose(routes.weights, [[2.5 * 4 / 6, 2.5 * 2 / 6]], rtol=1e-6)


def test_softmax_of_the_chosen_forgets_the_others() -> None:
    rule = RoutingRule(num_experts=4, num_used=2, gating=Gating.SOFTMAX_OF_CHOSEN)
    routes = choose_experts(logits(0, LN2, 2 * LN2, 0), rule)
    np.testing.assert_allclose(routes.weights, [[4 / 6, 2 / 6]], rtol=1e-6)


def test_the_bias_chooses_but_never_weighs() -> None:
    rule = RoutingRule(num_experts=3, num_used=1, gating=Gating.SIGMOID)
    routes = choose_experts(logits(LN2, 0, -LN2), rule, np.array([0, 0, 9], np.float32))
    np.testing.assert_array_equal(routes.ids, [[2]])
    np.testing.assert_allclose(routes.weights, [[1 / 3]], rtol=1e-6)  # sigmoid(-ln 2)


def test_weights_that_add_up_to_almost_nothing_are_not_blown_up() -> None:
    rule = RoutingRule(num_experts=2, num_used=1, gating=Gating.SIGMOID, normalize=True)
    routes = choose_experts(logits(-20, -21), rule)
    np.testing.assert_allclose(routes.weights, [[np.exp(-20) / 6.103515625e-5]], rtol=1e-5)


def test_a_group_is_as_good_as_its_two_best_experts_together() -> None:
    # The best expert of all, 9, is in a group of 9 + 0; the other group has 5 + 5, and keeps its third: 1.
    rule = RoutingRule(6, 3, gating=Gating.SOFTMAX_OF_CHOSEN, num_groups=2, num_groups_used=1)
    routes = choose_experts(logits(9, 0, 0, 5, 1, 5), rule)
    np.testing.assert_array_equal(routes.ids, [[3, 5, 4]])


def test_experts_of_groups_left_out_lose_even_against_negative_ones() -> None:
    rule = RoutingRule(4, 2, gating=Gating.SOFTMAX_OF_CHOSEN, num_groups=2, num_groups_used=1)
    routes = choose_experts(logits(-1, -5, -4, -3), rule)
    np.testing.assert_array_equal(routes.ids, [[0, 1]])


def test_among_equals_the_lower_id_comes_first() -> None:
    routes = choose_experts(logits(1, 1, 1, 1), RoutingRule(num_experts=4, num_used=3))
    np.testing.assert_array_equal(routes.ids, [[0, 1, 2]])


@pytest.mark.parametrize("gating", Gating)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_still_choose_experts_that_exist(gating: Gating, value: float) -> None:
    rule = RoutingRule(4, 2, gating=gating, normalize=True, num_groups=2, num_groups_used=1)
    with np.errstate(invalid="ignore"):
        routes = choose_experts(logits(value, value, 0, value), rule)
    assert set(routes.ids[0].tolist()) <= {0, 1, 2, 3}
