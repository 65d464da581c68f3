"""`ktdesk models`, and names of the store where a MODEL is asked for."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from running import RunKtdesk

from ktdesk.exit_codes import ExitCode
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
    assert ktdesk("models", "rm", "nothing").code == ExitCode.USAGE
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
