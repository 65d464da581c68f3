"""The catalogue of models: what ships adds up, the user's own overrides it, and errors name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktdesk_profiles.errors import ProfileError
from ktdesk_profiles.models import MODELS_FILE, ModelProfile, load_models, nearest
from ktdesk_profiles.reading import read_profiles

ENTRY = """
- name: small
  title: Small
  source: read
  architecture: qwen3moe
  layers: 2
  hidden: 64
  vocabulary: 100
  context: 512
  attention: {kind: grouped-query, heads: 4, kv_heads: 2, key_length: 16, value_length: 16}
  experts: {count: 4, used: 2, width: 32}
  total_billions: 1
  repositories: [{id: somebody/small-GGUF, seen: true}]
"""


def test_at_least_twenty_families_ship_and_each_says_whether_its_repository_was_seen() -> None:
    models = load_models()
    assert len(models) >= 25
    assert all(profile.repositories for profile in models.values())
    assert any(not repository.seen for profile in models.values() for repository in profile.repositories)


def test_files_of_the_user_add_models_and_override_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(ENTRY + ENTRY.replace("small", "qwen3-30b-a3b"))
    models = load_models(tmp_path)
    assert models["small"].title == "Small"
    assert models["qwen3-30b-a3b"].layers == 2
    assert models["deepseek-v3"].layers == 61
    assert load_models(tmp_path / "absent") == load_models()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layers: 2", "layers: two", "mine.yaml:6: layers must be of type int: 'two'"),
        ("layers: 2", "layer: 2", "mine.yaml:6: unknown key 'layer'"),
        ("layers: 2", "layers: 2\n  layers: 3", "mine.yaml:7: the key 'layers' is there twice"),
        ("  hidden: 64\n", "", "mine.yaml:2: hidden missing"),
        ("source: read", "source: guessed", "mine.yaml:4: source must be one of read, secondary, recalled: 'guessed'"),
        ("kind: grouped-query", "kind: magic", "mine.yaml:10: attention: kind must be one of grouped-query, latent"),
        ("used: 2", "used: 5", "5 of 4 experts cannot be used"),
        ("seen: true", "seen: maybe", "mine.yaml:13: seen must be of type bool: 'maybe'"),
        ("[{id", "{id: 3} #", "mine.yaml:13: repositories must be a list"),
        ("title: Small", "title: [", "not YAML"),
        ("layers: 2", "layers: 2\n  dense_layers: 1", "dense_layers without dense_width"),
    ],
)
def test_a_wrong_key_is_an_error_with_file_and_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ProfileError, match=r"^[^\n]+$") as error:
        read_profiles(ENTRY.replace(old, new), ModelProfile, "mine.yaml")
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["name: small", "3", ""])
def test_a_file_that_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(ProfileError, match=r"^mine\.yaml:1: must hold a list of entries$"):
        read_profiles(text, ModelProfile, "mine.yaml")


def test_two_entries_of_one_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(ENTRY + ENTRY)
    with pytest.raises(ProfileError, match="two entries are called 'small'"):
        load_models(tmp_path)


def test_a_name_that_nobody_knows_has_near_ones() -> None:
    models = load_models()
    assert nearest("qwen3-30b", models) == ["qwen3-30b-a3b", "qwen3-30b-a3b-2507"]
    assert nearest("gpt-os-20b", models)[0] == "gpt-oss-20b"
    assert nearest("zzz", models) == []


def test_the_file_that_ships_is_where_it_is_looked_for() -> None:
    assert MODELS_FILE == "models.yaml"
