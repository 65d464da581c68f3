"""Placement rules of the user's profiles reach the engine, with the file and line that they are from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
from ktdesk.options import EngineOptions
from ktdesk.settings import Settings

MINE = r"""
- name: mine
  title: One layer
  rules:
    - {match: 'blk\.1\.ffn_(gate|up|down)_exps', place: gpu}
    - {match: '_exps', place: cpu}
- name: odd
  title: Nothing
  rules:
    - {match: 'blk\.77\.ffn', place: cpu}
"""


@pytest.fixture
def settings() -> Settings:
    """With rules of the user's own."""
    settings = Settings(home=os.environ["KTDESK_HOME"])
    folder = settings.data_folder / "profiles" / "placements"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(MINE)
    return settings


def test_a_name_becomes_its_rules_once_and_for_all(settings: Settings) -> None:
    options = EngineOptions(placement="mine", accelerator="host-thread").with_settings(settings)
    assert options.with_settings(Settings()) == options, "as a server that is started gets it"
    assert [(rule.place, rule.where.rpartition("/")[2]) for rule in options.config.placement_rules] == [
        ("gpu", "own.yaml:5"),
        ("cpu", "own.yaml:6"),
    ]
    assert EngineOptions().with_settings(settings).config.placement_rules == ()


def test_the_engine_keeps_to_them(ktdesk: RunKtdesk, settings: Settings, tiny_model: Callable[[str], Path]) -> None:
    run = ("run", tiny_model("qwen3moe"), "Hello", "--max-tokens", "1", "--no-server", "--accelerator", "host-thread")
    assert ktdesk(*run, "--placement", "mine").code == ExitCode.OK
    for name, message in (
        ("odd", "own.yaml:10: match 'blk\\\\.77\\\\.ffn' finds no tensor"),
        ("absent", "no such rules"),
    ):
        result = ktdesk(*run, "--placement", name)
        assert result.code == ExitCode.USAGE
        assert message in result.error
