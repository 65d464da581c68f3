"""`ktdesk models`, and names of the store where a MODEL is asked for."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.errors import UsageError
from ktdesk.exit_codes import ExitCode
from ktdesk.model_paths import model_path
from ktdesk.settings import Settings
from ktdesk_profiles.demo import load_demo_profile
from ktdesk_wizard.store.record import ModelRecord, StoredFile, write_record

TinyModel = Callable[[str], Path]


@pytest.fixture
def stored(tmp_path: Path, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a model in the store, owner/Tiny-GGUF:F32."""
    monkeypatch.setenv("KTDESK_HOME", str(tmp_path))
    folder = tmp_path / "models" / "owner" / "Tiny-GGUF"
    folder.mkdir(parents=True)
    path = folder / "tiny-F32.gguf"
    shutil.copy(tiny_model("llama-moe"), path)
    file = StoredFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    record = ModelRecord("owner/Tiny-GGUF:F32", "F32", "https://hub", (file,), "owner/Tiny-GGUF", "c0ffee")
    write_record(folder / "F32.model.json", record)
    return path


def test_models_are_listed_for_people_and_as_json(ktdesk: RunKtdesk, stored: Path) -> None:
    assert ktdesk("models").out.split()[2:] == ["whole", "owner/Tiny-GGUF:F32"]
    (facts,) = json.loads(ktdesk("models", "--json").out)["models"]
    assert (facts["name"], facts["path"], facts["state"]) == ("owner/Tiny-GGUF:F32", str(stored), "whole")
    assert ktdesk("models", "ls", "--json").out == ktdesk("models", "--json").out


def test_a_plain_file_that_was_cut_is_listed_as_unusable(ktdesk: RunKtdesk, stored: Path) -> None:
    (stored.parent / "mine.gguf").write_bytes(stored.read_bytes()[:-100])
    mine, _ = json.loads(ktdesk("models", "--json").out)["models"]
    assert (mine["state"], "of a file of" in mine["problem"]) == ("unusable", True)


def test_without_models_the_list_is_empty_and_says_how_to_get_one(
    ktdesk: RunKtdesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KTDESK_DEMO_MODEL", raising=False)
    result = ktdesk("models")
    assert (result.code, result.out) == (0, "")
    assert "ktdesk pull MODEL" in result.err
    assert "demo" not in result.err
    monkeypatch.setenv("KTDESK_DEMO_MODEL", "/elsewhere/demo.gguf")
    assert "the demo model, `demo`, is /elsewhere/demo.gguf" in ktdesk("models").err
    assert "nothing to verify" in ktdesk("models", "verify").err


@pytest.mark.parametrize("name", ["owner/Tiny-GGUF:F32", "tiny-gguf", "tiny"])
def test_a_model_of_the_store_runs_by_its_name(ktdesk: RunKtdesk, stored: Path, name: str) -> None:
    result = ktdesk("run", name, "a", "--raw", "--max-tokens", "1", "--json")
    assert json.loads(result.out)["model"] == str(stored)
    assert json.loads(ktdesk("plan", name, "--json").out)["source"] == str(stored)


def test_a_model_that_is_not_whole_says_how_to_get_the_rest(ktdesk: RunKtdesk, stored: Path) -> None:
    stored.unlink()
    result = ktdesk("run", "owner/Tiny-GGUF:F32", "a")
    assert result.code == ExitCode.MODEL_FILE
    assert "`ktdesk pull owner/Tiny-GGUF:F32` fetches the rest" in result.error


def test_a_name_of_nothing_is_one_line(ktdesk: RunKtdesk, stored: Path) -> None:
    result = ktdesk("run", "owner/Other-GGUF", "a")
    assert result.code == ExitCode.MODEL_FILE
    assert "`ktdesk models` lists those" in result.error
    for command in ("rm", "verify"):
        result = ktdesk("models", command, "nothing")
        assert result.code == ExitCode.MODEL_FILE
        assert "nothing: no model of the store is called so" in result.error
    assert "name what to delete" in ktdesk("models", "rm").error


def test_verify_ends_with_3_where_a_file_is_not_what_its_hash_says(ktdesk: RunKtdesk, stored: Path) -> None:
    assert ktdesk("models", "verify").code == ExitCode.OK
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    result = ktdesk("models", "verify", "tiny", "--json")
    assert result.code == ExitCode.MODEL_FILE
    assert json.loads(result.out)["models"][0]["files"][0]["finding"] == "wrong"


def test_rm_deletes_the_model(ktdesk: RunKtdesk, stored: Path) -> None:
    assert ktdesk("models", "rm", "Tiny-GGUF:F32").code == ExitCode.OK
    assert not stored.exists()
    assert ktdesk("models").out == ""


@pytest.mark.parametrize("name", ["tinny", "owner/Tiny-GUF", "tiny-gguf:Q4_0"])
def test_an_unknown_name_is_answered_with_the_nearest_of_the_store(ktdesk: RunKtdesk, stored: Path, name: str) -> None:
    result = ktdesk("run", name, "a")
    assert result.code == ExitCode.MODEL_FILE
    assert "did you mean owner/Tiny-GGUF:F32?" in result.error
    assert "`ktdesk models` lists" in result.error


def test_every_name_that_is_printed_is_taken_by_every_command(
    ktdesk: RunKtdesk, stored: Path, tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = stored.parents[2]
    own = [models / "own folder" / "Tiny Mixture v1.gguf", models / "ünïcode" / "名前.gguf"]
    for path, shape in zip(own, ("qwen3moe", "gpt-oss"), strict=True):
        path.parent.mkdir()
        shutil.copy(tiny_model(shape), path)
    listed = {facts["name"]: Path(facts["path"]) for facts in json.loads(ktdesk("models", "--json").out)["models"]}
    assert len(listed) == 3
    asked = listed | {path.stem: path for path in own} | {path.name: path for path in own}
    asked |= {"TINY QWEN3MOE": own[0], "tiny llama-moe": stored, "Tiny-GGUF": stored}
    found = _found_instead_of_loaded(monkeypatch)
    for name, path in asked.items():
        plan = json.loads(ktdesk("plan", name, "--json").out)
        assert (Path(plan["source"]), plan["name"] in listed) == (path, True)
        for command in (("run", name, "a"), ("chat", name), ("serve", name), ("bench", name), ("eval", name)):
            assert "it would load" in ktdesk(*command).error
            assert found.pop() == path
        shown = ktdesk("profile", "show", name)
        assert (shown.code, "nothing was counted yet" in shown.err) == (ExitCode.OK, True)
    assert ktdesk("profile", "show", "tinny").code == ExitCode.USAGE


def _found_instead_of_loaded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which files commands find; they end there."""
    found: list[Path] = []

    def found_path(model: str, settings: Settings) -> Path:
        found.append(model_path(model, settings))
        raise UsageError("it would load")

    monkeypatch.setattr("ktdesk.model_paths.model_path", found_path)
    monkeypatch.setattr("ktdesk.planning.model_path", model_path)
    return found


def test_plain_files_in_the_folder_of_the_demo_model_have_names_of_their_own(
    ktdesk: RunKtdesk, stored: Path, tiny_model: TinyModel
) -> None:
    demo = stored.parents[2] / "demo"
    demo.mkdir()
    for name in ("mine", load_demo_profile().name):
        shutil.copy(tiny_model("llama-moe"), demo / f"{name}.gguf")
    names = [facts["name"] for facts in json.loads(ktdesk("models", "--json").out)["models"]]
    assert names == ["demo", "demo/mine", "owner/Tiny-GGUF:F32"]


def test_how_the_experts_of_a_model_were_used_is_shown_by_its_name_and_the_last_count_is_meant(
    ktdesk: RunKtdesk, stored: Path
) -> None:
    folder = stored.parents[3] / "profiles" / "use"
    folder.mkdir(parents=True)
    for number, model in (("2", "old.gguf"), ("1", stored.name)):
        record = {"format": 1, "model": model, "file": str(stored), "saved": f"day {3 - int(number)}"}
        (folder / f"{number}.json").write_text(json.dumps({**record, "rates": [[1.0, 2.0]]}))
    (folder / "3.json").write_text(json.dumps({"format": 1, "model": "gone.gguf", "saved": "", "rates": [[1.0]]}))
    shown = json.loads(ktdesk("profile", "show", "tiny", "--json").out)
    assert (shown["name"], shown["facts"]["saved"]) == ("owner/Tiny-GGUF:F32", "day 2")
    assert json.loads(ktdesk("profile", "show", str(stored), "--json").out) == shown
    assert json.loads(ktdesk("profile", "show", "gone", "--json").out)["name"] == "gone"
