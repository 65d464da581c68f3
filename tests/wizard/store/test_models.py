"""The store: what is listed, what a name means, what is found wrong, and what removing leaves."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from ktdesk_wizard.errors import StoreError
from ktdesk_wizard.store.checking import is_checked, remove, verify
from ktdesk_wizard.store.models import StoredModel, stored_models
from ktdesk_wizard.store.names import find_models
from ktdesk_wizard.store.record import ModelRecord, StoredFile, read_record, write_record

CONTENT = {"Q4/a-00001-of-00002.gguf": b"first" * 100, "Q4/a-00002-of-00002.gguf": b"second" * 50}


def put(store: Path, quantization: str = "Q4_K_M", content: dict[str, bytes] | None = None) -> StoredModel:
    """A model of a repository, whole."""
    folder = store / "owner" / "Big-GGUF"
    files = []
    for name, data in (content or CONTENT).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        files.append(StoredFile(name, len(data), hashlib.sha256(data).hexdigest()))
    name = f"owner/Big-GGUF:{quantization}"
    record = ModelRecord(name, quantization, "https://hub", tuple(files), "owner/Big-GGUF", "c0ffee")
    write_record(folder / f"{quantization}.model.json", record)
    return next(model for model in stored_models(store) if model.name == name)


def test_models_with_a_record_and_plain_files_are_listed_by_name(tmp_path: Path) -> None:
    put(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("mine/b-00001-of-00002.gguf", "mine/b-00002-of-00002.gguf", "alone.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    listed = stored_models(tmp_path)
    assert [model.name for model in listed] == ["alone", "mine/b", "owner/Big-GGUF:Q4_K_M"]
    assert [model.num_bytes for model in listed] == [4, 8, 800]
    assert {model.state for model in listed} == {"whole"}
    assert listed[2].path == tmp_path / "owner/Big-GGUF/Q4/a-00001-of-00002.gguf"


def test_a_plain_file_that_does_not_begin_as_gguf_does_is_unusable_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_bytes(b"<html>")
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    gone, page, pipe = stored_models(tmp_path)
    assert (gone.state, page.state, pipe.state) == ("partial", "unusable", "unusable")
    assert "a web page" in str(page.record.problem)
    assert "a device, pipe or socket" in str(pipe.record.problem)


def test_a_model_that_misses_a_file_is_partial_and_one_of_another_size_damaged(tmp_path: Path) -> None:
    model = put(tmp_path)
    os.truncate(model.path, 10)
    assert model.state == "damaged"
    model.path.unlink()
    assert model.state == "partial"
    assert model.num_present == 1
    assert stored_models(tmp_path / "nothing here") == []


@pytest.mark.parametrize(
    "name",
    ["owner/big-gguf:q4_k_m", "owner/Big-GGUF", "Big-GGUF:Q4_K_M", "Big-GGUF", "big", "owner/Big", "Big-GGUF-Q4_K_M"],
)
def test_a_name_may_leave_out_what_is_clear(tmp_path: Path, name: str) -> None:
    models = [put(tmp_path)]
    assert find_models(name, models) == models
    assert find_models(f"{name}x", models) == []


def test_a_name_that_two_models_have_means_both_until_it_says_more(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, "Q8_0", {"a-Q8_0.gguf": b"eight"})
    models = stored_models(tmp_path)
    assert len(find_models("Big-GGUF", models)) == 2
    assert len(find_models("Big-GGUF:Q8_0", models)) == 1
    assert len(find_models("of-the-catalogue", models, ["OWNER/big-gguf"])) == 2


def test_verify_finds_what_is_wrong_and_notes_what_is_right(tmp_path: Path) -> None:
    model = put(tmp_path)
    second = model.path_of(model.record.files[1])
    second.write_bytes(b"f" + second.read_bytes()[1:])
    assert [checked.finding for checked in verify(model)] == ["right", "wrong"]
    again = stored_models(tmp_path)[0]
    assert [is_checked(again, file) for file in again.record.files] == [True, False]
    os.utime(model.path, ns=(0, 0))
    assert not is_checked(again, again.record.files[0])
    second.unlink()
    assert [checked.finding for checked in verify(again)] == ["right", "missing"]


def test_of_a_plain_file_no_hash_is_known(tmp_path: Path) -> None:
    (tmp_path / "alone.gguf").write_bytes(b"x")
    (checked,) = verify(stored_models(tmp_path)[0])
    assert (checked.finding, checked.sha256) == ("no hash is known", hashlib.sha256(b"x").hexdigest())


def test_removing_takes_all_of_a_model_and_nothing_of_another(tmp_path: Path) -> None:
    other = put(tmp_path, "Q8_0", {"a-Q8_0.gguf": b"eight"})
    model = put(tmp_path)
    Path(f"{model.path}.part").write_bytes(b"part")
    Path(f"{model.path}.part.journal").write_bytes(b"journal")
    remove(model, tmp_path)
    assert stored_models(tmp_path) == [other]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["Q8_0.model.json", "a-Q8_0.gguf"]
    remove(other, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_removing_a_link_leaves_what_it_was_made_to(tmp_path: Path) -> None:
    original = tmp_path / "elsewhere.gguf"
    model = put(tmp_path / "store", content={"a.gguf": b"data"})
    original.write_bytes(b"data")
    model.path.unlink()
    model.path.symlink_to(original)
    assert model.state == "whole"
    assert remove(model, tmp_path / "store") == 0
    assert original.read_bytes() == b"data"


OUTSIDE = {"path": "../x", "num_bytes": 1, "sha256": None}
WRONG = {"version": 1, "name": "n", "quantization": "q", "source": "s", "files": [OUTSIDE]}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "files": []}', json.dumps(WRONG)], ids=range(6)
)
def test_a_damaged_record_is_an_error_and_its_files_count_as_plain(tmp_path: Path, text: str) -> None:
    model = put(tmp_path, content={"a.gguf": b"data"})
    assert model.record_path is not None
    model.record_path.write_text(text)
    with pytest.raises(StoreError, match="remove it, and pull the model again"):
        read_record(model.record_path)
    assert [each.name for each in stored_models(tmp_path)] == ["owner/Big-GGUF/a"]
