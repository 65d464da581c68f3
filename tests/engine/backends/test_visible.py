"""CUDA_VISIBLE_DEVICES, as CUDA reads it."""

from __future__ import annotations

import os

import pytest

from ktdesk_engine.backends.cuda.visible import count_by_bus, hides_all, is_counted_by_bus, visible_cards

UUIDS = ("GPU-8932f937-d72c", "GPU-8932aaaa-0000", "GPU-0b1c2d3e-ffff")


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, (0, 1, 2)),
        ("1", (1,)),
        ("2,0", (2, 0)),
        (" 2 , 1 ", (2, 1)),
        ("2x,1y", (2, 1)),
        ("", ()),
        ("-1", ()),
        ("-1,0", ()),
        ("7", ()),
        ("1,7,0", (1,)),
        ("0,-1,1", (0,)),
        ("0,0", ()),
        ("0,,1", (0,)),
        ("none", ()),
        ("GPU-0b1c2d3e-ffff", (2,)),
        ("GPU-0b,GPU-8932a", (2, 1)),
        ("GPU-8932", ()),
        ("GPU-ffff", ()),
        ("GPU-0b,0", (2, 0)),
        ("MIG-0b1c2d3e", ()),
    ],
)
def test_cards_are_named_by_number_or_by_the_beginning_of_their_uuid(
    visible: str | None, cards: tuple[int, ...]
) -> None:
    assert visible_cards(visible, UUIDS) == cards


def test_a_card_whose_uuid_is_not_told_has_its_number() -> None:
    assert visible_cards("GPU-1", (None, "GPU-1")) == (1,)
    assert visible_cards("0", (None, "GPU-1")) == (0,)


@pytest.mark.parametrize(("visible", "hides"), [("", True), ("-1", True), (" ,0", True), ("9", False), ("x", False)])
def test_what_names_no_card_on_any_machine_is_told_from_a_mistake(visible: str, hides: bool) -> None:
    assert hides_all(visible) == hides


def test_cards_are_counted_by_the_bus_unless_another_order_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    count_by_bus()
    assert not is_counted_by_bus({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    count_by_bus()
    assert is_counted_by_bus(os.environ)
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    assert is_counted_by_bus({})
