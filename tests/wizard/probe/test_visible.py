"""Which card a machine with several is planned with: the one that the engine uses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from captured import facts_below
from machine_trees import GIB, FakeCard, FakeNvml, write_machine

from ktdesk.machine_text import as_text
from ktdesk_wizard.doctor.device_checks import hidden_cards
from ktdesk_wizard.doctor.diagnosis import Case
from ktdesk_wizard.plan.cards import missing_card, usable_cards, which_card
from ktdesk_wizard.plan.wishes import EngineAbilities, Wishes
from ktdesk_wizard.probe.facts_json import overlay
from ktdesk_wizard.probe.machine_facts import LinkRate, MachineFacts

BOTH = (
    FakeCard("NVIDIA RTX A2000", 6 * GIB, 5 * GIB, "00000000:01:00.0", capability=(8, 6), uuid="GPU-aa11"),
    FakeCard("NVIDIA RTX 6000", 48 * GIB, 40 * GIB, "00000000:81:00.0", capability=(8, 9), uuid="GPU-ab22"),
)
PART = FakeCard("NVIDIA A100 MIG 1g.5gb", 5 * GIB, 4 * GIB, uuid="MIG-77", slice_of=1)
WITH_GPU = EngineAbilities(frozenset({"qwen3moe"}), has_gpu=True)
NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)


def facts_of(root: Path, **environment: str) -> MachineFacts:
    captured = replace(write_machine("nps4", root), nvml=FakeNvml([*BOTH, PART]))
    return facts_below(captured, environment=environment)


@pytest.mark.parametrize(
    ("visible", "card"),
    [
        (None, 0),
        ("1", 1),
        ("1,0", 1),
        ("GPU-ab22", 1),
        ("GPU-ab", 1),
        ("", None),
        ("-1", None),
        ("2", None),
        ("GPU-a", None),
        ("MIG-0", None),
    ],
)
def test_the_engines_card_is_planned_with(visible: str | None, card: int | None, tmp_path: Path) -> None:
    facts = facts_of(tmp_path, **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
    usable, refused = usable_cards(facts, Wishes(devices="gpu"), WITH_GPU)
    assert [facts.index for facts, _ in usable] == ([] if card is None else [card])
    assert len(usable) + len(refused) == 2
    if card is None:
        assert f"CUDA does not see it: CUDA_VISIBLE_DEVICES={visible}" in missing_card(facts, refused)


def test_the_plan_names_it_where_there_are_several(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, CUDA_VISIBLE_DEVICES="GPU-ab")
    ((card, num_bytes),), _ = usable_cards(facts, Wishes(devices="gpu"), WITH_GPU)
    assert num_bytes == 40 * GIB
    assert which_card(facts, card) == (
        "the card is 1 by the bus, NVIDIA RTX 6000 at 0000:81:00.0: CUDA_VISIBLE_DEVICES=GPU-ab"
    )
    assert "engine's card       card 1" in as_text(facts, with_sources=False)


def test_of_a_slice_its_own_memory_counts(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, CUDA_VISIBLE_DEVICES="MIG-77")
    ((card, num_bytes),), _ = usable_cards(facts, Wishes(devices="gpu"), WITH_GPU)
    assert (card.index, card.name.value, num_bytes) == (1, "NVIDIA A100 MIG 1g.5gb", 4 * GIB)
    assert "a slice (MIG)" in card.bytes_s.source
    assert facts.gpus.gpus[0].total_bytes.value == 6 * GIB


def test_an_order_that_only_cuda_knows_is_not_guessed(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="FASTEST_FIRST")
    assert not facts.gpus.visible.is_known
    ((card, _),), _ = usable_cards(facts, Wishes(devices="gpu"), WITH_GPU)
    assert "CUDA_DEVICE_ORDER=FASTEST_FIRST: only CUDA knows that order" in (which_card(facts, card) or "")
    by_uuid = facts_of(tmp_path / "again", CUDA_VISIBLE_DEVICES="GPU-ab", CUDA_DEVICE_ORDER="FASTEST_FIRST")
    assert by_uuid.gpus.visible.value == (1,)


def test_what_is_seen_here_says_nothing_of_other_cards(tmp_path: Path) -> None:
    facts = overlay(facts_of(tmp_path, CUDA_VISIBLE_DEVICES="1"), {"gpus": {"gpus": [{"index": 0}]}}, "file")
    assert not facts.gpus.visible.is_known


def test_a_doctor_tells_a_mistake_from_cards_that_are_meant_to_be_hidden(tmp_path: Path) -> None:
    for text, severity in (("", "note"), ("-1", "note"), ("7", "wrong"), ("1", None)):
        environment = {"CUDA_VISIBLE_DEVICES": text}
        case = Case(facts_of(tmp_path / f"machine{text}", **environment), NOW, environment=environment)
        assert [finding.severity for finding in hidden_cards(case)] == ([] if severity is None else [severity])


def test_rates_of_one_card_are_not_anothers(tmp_path: Path) -> None:
    first, second = facts_of(tmp_path).gpus.gpus
    rate = LinkRate("NVIDIA RTX 6000 at 0000:81:00.0", 1.0, 1.0)
    assert (rate.is_of(first), rate.is_of(second)) == (False, True)
    of_before = replace(rate, name="NVIDIA RTX 6000")
    assert (of_before.is_of(first), of_before.is_of(second)) == (True, False)
