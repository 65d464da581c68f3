"""Where experts would lie better."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktdesk.expert_placing import Exchange, ExpertHeat, Place, Placing, Room, better_placing, rooms_of_a_card
from ktdesk_engine.placement import choose_residents
from ktdesk_engine.placement_rules import ExpertRules

RATES = [[10, 60, 5, 5], [20, 0, 0, 0]]


def test_the_most_used_change_places_with_the_least_used_of_the_accelerator() -> None:
    heat = ExpertHeat(RATES, [[True, True, False, False], [False] * 4])
    exchange = Exchange(Place(1, 0), Place(0, 0), 0.2, 0.1)
    assert better_placing(heat) == Placing(2, 0.7, pytest.approx(0.8), [exchange])


def test_experts_of_layers_that_rules_place_stay_where_they_are() -> None:
    heat = ExpertHeat(RATES, [[True, True, False, False], [False] * 4], fixed_layers=[1])
    assert better_placing(heat) == Placing(2, 0.7, 0.7, [])


def test_nothing_is_suggested_without_an_accelerator_or_use() -> None:
    assert better_placing(ExpertHeat(RATES)) is None
    assert better_placing(ExpertHeat([[0, 0]], [[True, False]])) is None


@given(
    st.integers(1, 4).flatmap(
        lambda layers: st.tuples(
            st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5), min_size=layers, max_size=layers),
            st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=layers, max_size=layers),
            st.sets(st.integers(0, layers - 1)),
        )
    )
)
def test_exchanges_lead_to_what_the_engine_would_choose(
    drawn: tuple[list[list[int]], list[list[bool]], set[int]],
) -> None:
    rates, resident, fixed = drawn
    placing = better_placing(ExpertHeat(rates, resident, fixed_layers=sorted(fixed)))
    if placing is None:
        assert not np.any(rates)
        return
    mask = np.array(resident)
    free = mask.copy()
    free[list(fixed)] = False
    rules = ExpertRules((), tuple(fixed))
    wanted = choose_residents("frequency", np.array(rates, float), int(free.sum()), rules)
    then = np.array(rates)[wanted].sum() + np.array(rates)[mask & ~free].sum()
    assert placing.share_then == pytest.approx(then / np.sum(rates))
    for exchange in placing.exchanges:
        assert mask[exchange.leaving]
        assert not mask[exchange.coming]
        assert not {exchange.leaving.layer, exchange.coming.layer} & fixed
        mask[exchange.leaving], mask[exchange.coming] = False, True
    assert mask.sum() == np.sum(resident)


def test_a_card_takes_the_most_used_that_fit() -> None:
    heat = ExpertHeat(RATES, slot_bytes=1000)
    assert rooms_of_a_card(heat) == [
        Room(1024, 1, 0.6),
        Room(2048, 2, pytest.approx(0.8)),
        Room(4096, 4, pytest.approx(0.95)),
        Room(8000, 8, pytest.approx(1.0)),
    ]
    assert rooms_of_a_card(ExpertHeat(RATES)) == []
    assert rooms_of_a_card(ExpertHeat([[0, 0]], slot_bytes=1000)) == []


def test_layers_are_called_by_their_block() -> None:
    heat = ExpertHeat(RATES, blocks=[1, 2])
    assert [heat.block(layer) for layer in (0, 1, 2)] == [1, 2, 2]
