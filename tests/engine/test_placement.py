"""Which experts lie on the accelerator: rules, strategies, moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktdesk_engine.errors import ConfigError
from ktdesk_engine.experts.use import HALF_LIFE_TOKENS, ExpertUse
from ktdesk_engine.placement import Budget, choose_residents, moves_toward
from ktdesk_engine.placement_rules import STRATEGIES, ExpertRules, Rule, Strategy, apply_rules

RATES = np.array([[5.0, 1, 4, 0], [2, 9, 0, 3]])
NAMES = [f"blk.{block}.{part}.weight" for block in (1, 2) for part in ("attn_q", "ffn_gate_exps", "ffn_down_exps")]


@pytest.mark.parametrize(
    ("strategy", "residents"),
    [
        ("frequency", [[0, 0], [0, 2], [1, 1]]),
        ("front-loading", [[0, 0], [0, 1], [0, 2]]),
        ("uniform", [[0, 0], [0, 2], [1, 1]]),
    ],
)
def test_a_strategy_takes_who_comes_first_by_its_order(strategy: Strategy, residents: list[list[int]]) -> None:
    np.testing.assert_array_equal(np.argwhere(choose_residents(strategy, RATES, 3)), residents)


def test_frequency_may_take_all_of_one_layer_and_uniform_shares() -> None:
    rates = np.array([[9.0, 8, 7, 6], [1, 2, 3, 4]])
    np.testing.assert_array_equal(choose_residents("frequency", rates, 4).sum(axis=1), [4, 0])
    np.testing.assert_array_equal(choose_residents("uniform", rates, 4), [[1, 1, 0, 0], [0, 0, 1, 1]])


def test_random_is_the_same_with_the_same_seed() -> None:
    one, same, other = (choose_residents("random", np.zeros((8, 16)), 20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@given(st.sampled_from(STRATEGIES), st.integers(1, 4), st.integers(1, 9), st.integers(0, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_as_many_are_chosen_as_there_is_room_for(
    strategy: Strategy, layers: int, experts: int, num_slots: int, seed: int
) -> None:
    rates = np.random.default_rng(seed).random((layers, experts))
    assert choose_residents(strategy, rates, num_slots).sum() == min(num_slots, layers * experts)
    forbidden = ExpertRules((), (0,))
    mask = choose_residents(strategy, rates, num_slots, forbidden)
    assert not mask[0].any()
    assert mask.sum() == min(num_slots, (layers - 1) * experts)


def test_a_budget_is_whole_experts() -> None:
    assert Budget(999, 100).num_slots == 9


def test_rules_force_and_forbid_layers_and_the_first_match_counts() -> None:
    rules = [Rule(r"^blk\.1\..*_exps", "gpu"), Rule("_exps", "cpu"), Rule("attn", "gpu")]
    assert apply_rules(rules, NAMES, [1, 2]) == ExpertRules(forced=(0,), forbidden=(1,))
    np.testing.assert_array_equal(
        choose_residents("frequency", RATES, 6, ExpertRules((0,), (1,))), [[1, 1, 1, 1], [0, 0, 0, 0]]
    )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([Rule("ffn_up_exps", "cpu", "mine.yaml:3")], "mine.yaml:3: match 'ffn_up_exps' finds no tensor of this model"),
        ([Rule("attn_q", "cpu", "mine.yaml:3")], "mine.yaml:3: blk.1.attn_q.weight would stay on the CPU, but only"),
        ([Rule("down_exps", "gpu", "mine.yaml:9")], "mine.yaml:9: match 'down_exps' finds a part of the experts of"),
    ],
)
def test_rules_that_make_no_sense_are_refused_with_their_place(rules: list[Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply_rules(rules, NAMES, [1, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("(", "gpu", "a:1"), r"a:1: match '\(' is no regular expression"), ((".", "npu", "a:2"), "a:2: place must be")],
)
def test_a_rule_is_checked_where_it_is_made(arguments: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rule(*arguments)  # type: ignore[arg-type]


def test_rules_that_force_more_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="rules put 4 experts on the accelerator, but there is room for 3"):
        choose_residents("uniform", RATES, 3, ExpertRules((1,), ()))


def test_moves_that_gain_the_most_come_first() -> None:
    current = np.array([[True, True, False, False], [True, False, False, False]])
    wanted = np.array([[True, False, True, False], [False, True, False, False]])
    assert moves_toward(current, wanted, RATES, 9) == [(1, 5), (4, 2)]
    assert moves_toward(current, wanted, RATES, 1) == [(1, 5)]
    assert moves_toward(current, current, RATES, 9) == []


def test_what_was_used_long_ago_counts_less() -> None:
    use = ExpertUse(1, 3, 1)
    use.counts[0, 0] = 100
    use.rates()
    use.counts[0, 1] = HALF_LIFE_TOKENS
    np.testing.assert_allclose(use.rates(), [[50, HALF_LIFE_TOKENS, 0]])
    other = ExpertUse(1, 3, 1)
    other.restore(use.rates().tolist())
    np.testing.assert_array_equal(other.rates(), use.rates())


@pytest.mark.parametrize("rates", [[[1, 2]], [[1, 2, -1]], [[1, 2, float("nan")]], [1, 2, 3]])
def test_use_that_is_not_this_models_is_refused(rates: object) -> None:
    with pytest.raises(ConfigError, match="the use of experts must be 1 x 3 numbers of at least 0"):
        ExpertUse(1, 3, 1).restore(rates)  # type: ignore[arg-type]
