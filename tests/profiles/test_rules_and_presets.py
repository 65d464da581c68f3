"""Placement rules and presets: the first match counts, users override, and a wrong key has file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktdesk_profiles.errors import ProfileError
from ktdesk_profiles.models import load_models
from ktdesk_profiles.placements import Placement, PlacementRule, load_placements
from ktdesk_profiles.presets import load_presets, said

EXPERTS = [f"blk.{layer}.ffn_{part}_exps.weight" for layer in (0, 7, 8, 40, 99, 100) for part in ("gate", "down")]


def test_the_first_rule_that_matches_counts() -> None:
    placement = Placement("x", "", (PlacementRule("blk[.]1[.]", "gpu"), PlacementRule("_exps", "cpu")))
    assert placement.place_of("blk.1.ffn_up_exps.weight") == "gpu"
    assert placement.place_of("blk.2.ffn_up_exps.weight") == "cpu"
    assert placement.place_of("blk.2.attn_q.weight") is None


def test_a_rule_behind_one_that_takes_all_is_found() -> None:
    placement = Placement("x", "", (PlacementRule("_exps", "cpu"), PlacementRule("blk[.]0[.].*_exps", "gpu")))
    assert placement.unused(EXPERTS) == [placement.rules[1]]


@pytest.mark.parametrize("name", load_placements())
def test_shipped_rules_send_only_routed_experts_to_the_cpu_and_each_of_them_is_used(name: str) -> None:
    _, placement = load_placements()[name]
    for tensor in ("blk.0.attn_q.weight", "token_embd.weight", "blk.3.ffn_gate.weight", "blk.3.ffn_up_shexp.weight"):
        assert placement.place_of(tensor) != "cpu"
    assert placement.unused(EXPERTS) == []
    for layer in (0, 8, 40, 100):
        places = {placement.place_of(f"blk.{layer}.ffn_{part}_exps.weight") for part in ("gate", "up", "down")}
        assert len(places) == 1, "an expert is computed in one place"


def test_a_rule_knows_where_it_stands() -> None:
    origin, placement = load_placements()["first-experts-on-gpu"]
    assert origin == "placements.yaml"
    assert [rule.where.partition(":")[0] for rule in placement.rules] == [origin, origin]
    first, second = (int(rule.where.rpartition(":")[2]) for rule in placement.rules)
    assert second == first + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {name: a, title: b, rules: [{match: '(', place: cpu}]}", r"x.yaml:1: match '\(' is no regular expression"),
        ("- {name: a, title: b, rules: [{match: a, place: disk}]}", "x.yaml:1: place must be one of gpu, cpu: 'disk'"),
        ("- name: a\n  title: b\n  rules: [{match: a, plcae: cpu}]", "x.yaml:3: unknown key 'plcae'"),
        ("- {name: a, title: b, rules: [{match: a, place: cpu, where: x}]}", "unknown key 'where'"),
        ("- {name: a, title: b, rules: []}", "there are no rules"),
        ("- {name: a, title: b, rules: x}", "rules must be a list"),
    ],
)
def test_a_wrong_rule_is_an_error_with_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ProfileError, match=message):
        load_placements(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {name: a, title: b}", "it says nothing"),
        ("- name: a\n  title: b\n  sampling:\n    temprature: 1", "x.yaml:4: unknown key 'temprature'"),
        ("- {name: a, title: b, sampling: {top_p: 1.5}}", "top_p must be in 0..1: 1.5"),
        ("- {name: a, title: b, plan: {context: 0}}", "context must be more than 0"),
        ("- {name: a, title: b, plan: {context: long}}", "context must be of type int: 'long'"),
        ("- {name: a, title: b, plan: {cache_type: q4_0}}", "cache_type must be one of float32"),
    ],
)
def test_a_wrong_preset_is_an_error_with_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ProfileError, match=message):
        load_presets(tmp_path)


def test_a_users_preset_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("- {name: code, title: mine, sampling: {temperature: 0.1}}")
    presets = load_presets(tmp_path)
    origin, code = presets["code"]
    assert (origin, code.title, said(code.sampling)) == (str(tmp_path / "mine.yaml"), "mine", {"temperature": 0.1})
    assert presets["talk"][0] == "presets.yaml"


def test_there_are_twenty_families_and_each_repository_is_marked() -> None:
    models = load_models()
    assert len(models) >= 20
    assert len({model.architecture for model in models.values()}) >= 12
    assert all(isinstance(repository.seen, bool) for model in models.values() for repository in model.repositories)
    assert all(model.repositories for model in models.values())
