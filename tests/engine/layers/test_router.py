"""Choosing experts, natively and by the reference, with numbers that can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ktdesk_engine import kernels
from ktdesk_engine.kernels import reference_routing, routing
from ktdesk_engine.kernels.routing import Gating, Routes, RoutingRule

LN2 = np.log(2.0)

Choose = Callable[..., Routes]


def natively(logits: np.ndarray, rule: RoutingRule, bias: np.ndarray | None = None) -> Routes:
    return routing.choose_experts(kernels.worker_pool(2), logits, rule, bias)


@pytest.fixture(params=[natively, reference_routing.choose_experts])
def choose_experts(request: pytest.FixtureRequest) -> Choose:
    chosen: Choose = request.param
    return chosen


def logits(*row: float) -> np.ndarray:
    return np.array([row], np.float32)


def test_softmax_weights_are_probabilities_over_all_experts(choose_experts: Choose) -> None:
    routes = choose_experts(logits(0, LN2, 2 * LN2, 0), RoutingRule(num_experts=4, num_used=2))  # 1 : 2 : 4 : 1
    np.testing.assert_array_equal(routes.ids, [[2, 1]])
    np.testing.assert_allclose(routes.weights, [[4 / 8, 2 / 8]], rtol=1e-6)


def test_normalized_weights_add_up_to_one(choose_experts: Choose) -> None:
    rule = RoutingRule(num_experts=4, num_used=2, normalize=True, scale=2.5)
    routes = choose_experts(logits(0, LN2, 2 * LN2, 0), rule)
    np.testing.assert_allclose(routes.weights, [[2.5 * 4 / 6, 2.5 * 2 / 6]], rtol=1e-6)


def test_softmax_of_the_chosen_forgets_the_others(choose_experts: Choose) -> None:
    rule = RoutingRule(num_experts=4, num_used=2, gating=Gating.SOFTMAX_OF_CHOSEN)
    routes = choose_experts(logits(0, LN2, 2 * LN2, 0), rule)
    np.testing.assert_allclose(routes.weights, [[4 / 6, 2 / 6]], rtol=1e-6)


def test_the_bias_chooses_but_never_weighs(choose_experts: Choose) -> None:
    rule = RoutingRule(num_experts=3, num_used=1, gating=Gating.SIGMOID)
    routes = choose_experts(logits(LN2, 0, -LN2), rule, np.array([0, 0, 9], np.float32))
    np.testing.assert_array_equal(routes.ids, [[2]])
    np.testing.assert_allclose(routes.weights, [[1 / 3]], rtol=1e-6)  # sigmoid(-ln 2)


def test_weights_that_add_up_to_almost_nothing_are_not_blown_up(choose_experts: Choose) -> None:
    rule = RoutingRule(num_experts=2, num_used=1, gating=Gating.SIGMOID, normalize=True)
    routes = choose_experts(logits(-20, -21), rule)
    np.testing.assert_allclose(routes.weights, [[np.exp(-20) / 6.103515625e-5]], rtol=1e-5)


def test_a_group_is_as_good_as_its_two_best_experts_together(choose_experts: Choose) -> None:
    # The best expert of all, 9, is in a group of 9 + 0; the other group has 5 + 5, and keeps its third: 1.
    rule = RoutingRule(6, 3, gating=Gating.SOFTMAX_OF_CHOSEN, num_groups=2, num_groups_used=1)
    routes = choose_experts(logits(9, 0, 0, 5, 1, 5), rule)
    np.testing.assert_array_equal(routes.ids, [[3, 5, 4]])


def test_experts_of_groups_left_out_lose_even_against_negative_ones(choose_experts: Choose) -> None:
    rule = RoutingRule(4, 2, gating=Gating.SOFTMAX_OF_CHOSEN, num_groups=2, num_groups_used=1)
    routes = choose_experts(logits(-1, -5, -4, -3), rule)
    np.testing.assert_array_equal(routes.ids, [[0, 1]])


def test_among_equals_the_lower_id_comes_first(choose_experts: Choose) -> None:
    routes = choose_experts(logits(1, 1, 1, 1), RoutingRule(num_experts=4, num_used=3))
    np.testing.assert_array_equal(routes.ids, [[0, 1, 2]])


@pytest.mark.parametrize("gating", Gating)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_still_choose_experts_that_exist(
    choose_experts: Choose, gating: Gating, value: float
) -> None:
    rule = RoutingRule(4, 2, gating=gating, normalize=True, num_groups=2, num_groups_used=1)
    with np.errstate(invalid="ignore"):
        routes = choose_experts(logits(value, value, 0, value), rule)
    assert set(routes.ids[0].tolist()) <= {0, 1, 2, 3}


@pytest.mark.parametrize("gating", Gating)
@pytest.mark.parametrize(("experts", "used", "groups", "groups_used"), [(1, 1, 1, 1), (300, 8, 1, 1), (256, 8, 8, 4)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_native_choice_is_the_references(
    gating: Gating, experts: int, used: int, groups: int, groups_used: int, has_bias: bool
) -> None:
    rng = np.random.default_rng(experts)
    rule = RoutingRule(experts, used, gating, True, 2.5, groups, groups_used)
    logits = rng.standard_normal((33, experts)).astype(np.float32)
    bias = rng.standard_normal(experts).astype(np.float32) if has_bias else None
    got, want = natively(logits, rule, bias), reference_routing.choose_experts(logits, rule, bias)
    np.testing.assert_array_equal(got.ids, want.ids)
    np.testing.assert_allclose(got.weights, want.weights, rtol=1e-5)
