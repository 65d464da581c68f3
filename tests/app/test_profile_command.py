"""`ktdesk profile`, and presets where they are used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from running import RunKtdesk

from ktdesk.exit_codes import ExitCode


def test_all_kinds_are_listed_and_shown(ktdesk: RunKtdesk) -> None:
    profiles = json.loads(ktdesk("profile", "ls", "--json").out)["profiles"]
    assert {profile["kind"] for profile in profiles} == {"machine", "model", "placement", "preset"}
    assert len([profile for profile in profiles if profile["kind"] == "model"]) >= 20
    for name in ("desktop-64g", "deepseek-v3", "experts-on-cpu", "code"):
        shown = ktdesk("profile", "show", name)
        assert shown.code == ExitCode.OK
        assert shown.out.startswith("# ")
    assert "story" in ktdesk("profile", "ls", "preset").out


def test_a_users_file_shows_where_it_is_from_and_a_wrong_one_is_one_line(ktdesk: RunKtdesk, tmp_path: Path) -> None:
    folder = tmp_path / "profiles" / "presets"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("- {name: code, title: mine, sampling: {temperature: 0.1}}")
    assert "mine.yaml" in ktdesk("--home", tmp_path, "profile", "show", "code").out
    assert "mine.yaml" in ktdesk("--home", tmp_path, "profile", "ls", "preset").out
    (folder / "mine.yaml").write_text("- {name: code, title: mine, sampling: {heat: 0.1}}")
    result = ktdesk("--home", tmp_path, "profile", "ls")
    assert result.code == ExitCode.USAGE
    assert "mine.yaml:1: unknown key 'heat'" in result.error


def test_names_that_are_none_get_those_that_are_near(ktdesk: RunKtdesk) -> None:
    assert "did you mean code?" in ktdesk("profile", "show", "codes").error
    assert ktdesk("profile", "ls", "planets").code == ExitCode.USAGE


def test_a_preset_is_asked_of_plans_and_answers_and_options_count_more(
    ktdesk: RunKtdesk, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "profiles" / "presets"
    folder.mkdir(parents=True)
    preset = "- {name: tight, title: x, plan: {context: 128, cache_type: bf16}, sampling: {temperature: 0.0}}"
    (folder / "mine.yaml").write_text(preset)
    model, home = tiny_model("qwen3moe"), ("--home", tmp_path)
    plan = json.loads(ktdesk(*home, "plan", model, "--preset", "tight", "--json").out)
    assert (plan["context"], plan["cache_type"]) == (128, "bf16")
    plan = json.loads(ktdesk(*home, "plan", model, "--preset", "tight", "--context", "256", "--json").out)
    assert plan["context"] == 256
    run = ("run", model, "the cat", "--raw", "--max-tokens", "2", "--json", "--preset")
    answer = json.loads(ktdesk(*home, *run, "tight").out)
    assert answer["sampling"]["temperature"] == 0
    assert json.loads(ktdesk(*home, *run, "tight", "--temperature", "0.5").out)["sampling"]["temperature"] == 0.5
    result = ktdesk(*home, *run, "loose")
    assert result.code == ExitCode.USAGE
    assert "there are exact, steady" in result.error
