"""A model in several files opens through any of them, and an incomplete or mixed set is named."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ktdesk_engine.errors import MissingShardError, ModelFileError
from ktdesk_engine.gguf.file import GGUFFile


def shard_name(number: int, total: int, stem: str = "model") -> str:
    return f"{stem}-{number:05d}-of-{total:05d}.gguf"


def write_shard(path: Path, tensors: Sequence[str], **keys: Any) -> None:
    """One file with a tensor of four values for each name. Keys: no, count, tensors_count, architecture."""
    writer = gguf.GGUFWriter(path, keys.get("architecture", ""))
    if "architecture" not in keys:
        writer.kv_data[0].clear()
    for key, add in (
        ("no", writer.add_uint16),
        ("count", writer.add_uint16),
        ("tensors_count", writer.add_int32),
    ):
        if keys.get(key) is not None:
            add(f"split.{key.replace('_', '.')}", keys[key])
    for name in tensors:
        writer.add_tensor(name, np.full(4, int(name[1:]), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_set(folder: Path, *, stem: str = "model", first_tensor: int = 0, architecture: str = "llama") -> list[Path]:
    """Three shards: the first with the metadata and no tensor, two with two tensors each."""
    paths = [folder / shard_name(number, 3, stem) for number in (1, 2, 3)]
    names = [f"t{first_tensor + index}" for index in range(4)]
    write_shard(paths[0], [], no=0, count=3, tensors_count=4, architecture=architecture)
    write_shard(paths[1], names[:2], no=1, count=3, tensors_count=4)
    write_shard(paths[2], names[2:], no=2, count=3, tensors_count=4)
    return paths


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        GGUFFile.open(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_shard_opens_the_whole_model(given: int, tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    with GGUFFile.open(paths[given]) as file:
        assert (file.path, file.shards) == (paths[given], tuple(paths))
        assert file.architecture == "llama"
        assert list(file.tensors) == ["t0", "t1", "t2", "t3"]
        assert [file.tensors[f"t{index}"].path for index in range(4)] == [paths[1]] * 2 + [paths[2]] * 2
        assert [file.data(f"t{index}").view(np.float32)[0] for index in range(4)] == [0, 1, 2, 3]


def test_a_set_that_the_gguf_package_split_opens(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=2)
    for index in range(5):
        writer.add_tensor(f"t{index}", np.full(4, index, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile.open(tmp_path / shard_name(2, 3))
    assert [file.data(f"t{index}").view(np.float32)[0] for index in range(5)] == [0, 1, 2, 3, 4]


def test_all_missing_shards_are_named(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[0].unlink()
    paths[2].unlink()
    with pytest.raises(MissingShardError) as caught:
        GGUFFile.open(paths[1])
    names = f"{shard_name(1, 3)}, {shard_name(3, 3)}"
    assert caught.value.problem == f"2 of 3 shards are missing: {names}; fetch them into {tmp_path}"


def test_a_missing_shard_of_a_set_that_is_there_is_a_missing_shard(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[1].unlink()
    with pytest.raises(MissingShardError, match=r"1 of 3 shards is missing: model-00002-of-00003\.gguf;"):
        GGUFFile.open(paths[1])


def test_a_shard_of_a_set_that_is_not_there_at_all_is_a_missing_file(tmp_path: Path) -> None:
    assert "no such file; there are no .gguf files in" in refusal(tmp_path / shard_name(1, 9))


def test_a_set_of_thousands_of_missing_shards_is_not_listed_in_full(tmp_path: Path) -> None:
    write_shard(tmp_path / shard_name(1, 99_999), [])
    message = refusal(tmp_path / shard_name(1, 99_999))
    assert message.startswith(f"{tmp_path / shard_name(1, 99_999)}: 99998 of 99999 shards are missing: model-00002-")
    assert "model-00201-of-99999.gguf and 99798 more; fetch" in message


@pytest.mark.parametrize("number", [0, 4])
def test_a_number_beyond_the_set_is_a_renamed_file(number: int, tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[0].rename(tmp_path / shard_name(number, 3))
    assert f"its name says shard {number} of 3: it was renamed" in refusal(tmp_path / shard_name(number, 3))


def test_a_shard_without_a_shards_name_is_told_its_name(tmp_path: Path) -> None:
    path = write_set(tmp_path)[1].rename(tmp_path / "renamed.gguf")
    assert "split.count is 3: this is one of several files, but is not named like one" in refusal(path)


@pytest.mark.parametrize("count", [None, 0, 1])
def test_a_set_of_one_needs_no_split_keys(count: int | None, tmp_path: Path) -> None:
    path = tmp_path / shard_name(1, 1)
    write_shard(path, ["t7"], count=count)
    assert list(GGUFFile.open(path).tensors) == ["t7"]


def test_swapped_shards_are_named(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[1].rename(tmp_path / "x")
    paths[2].rename(paths[1])
    (tmp_path / "x").rename(paths[2])
    assert f"{paths[1]}: split.no is 2, the files beside it make it 1" in refusal(paths[0])


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"count": 3, "tensors_count": 4}, "split.no is missing, the files beside it make it 1"),
        ({"no": 1, "tensors_count": 4}, "split.count is missing, the files beside it make it 3"),
        ({"no": 1, "count": 2, "tensors_count": 4}, "split.count is 2, the files beside it make it 3"),
        (
            {"no": 1, "count": 3, "tensors_count": 5},
            "split.tensors.count is 5, the files beside it make it 4",
        ),
        (
            {"no": 1, "count": 3, "architecture": "qwen3moe"},
            f"general.architecture is 'qwen3moe', but 'llama' in {shard_name(1, 3)}: shards of two",
        ),
    ],
)
def test_a_shard_that_contradicts_the_others_is_named(keys: dict[str, Any], problem: str, tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    write_shard(paths[1], ["t0", "t1"], **keys)
    assert refusal(paths[0]).startswith(f"{paths[1]}: {problem}")


def test_two_shards_with_the_same_tensor_are_of_two_sets(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    write_shard(paths[2], ["t3", "t1"], no=2, count=3, tensors_count=4)
    problem = f"tensor 't1' is also in {paths[1].name}: shards of two different sets; fetch one set again"
    assert refusal(paths[1]) == f"{paths[2]}: {problem}"


@pytest.mark.parametrize("tensors_count", [None, 5])
def test_a_wrong_total_of_tensors_is_named(tensors_count: int | None, tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    write_shard(paths[0], [], no=0, count=3, tensors_count=tensors_count, architecture="llama")
    said = "missing" if tensors_count is None else tensors_count
    expected = f"{paths[0]}: split.tensors.count is {said}, the files beside it make it 4"
    assert refusal(paths[2]).startswith(expected)


def test_an_older_shard_of_a_longer_set_is_told_by_its_total(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = write_set(tmp_path)
    other = write_set(tmp_path / "other", first_tensor=10)
    write_shard(other[2], ["t12", "t13"], no=2, count=3, tensors_count=6)
    shutil.copy(other[2], paths[2])
    assert refusal(paths[0]).startswith(f"{paths[2]}: split.tensors.count is 6, the files beside it make it 4")


def test_a_damaged_shard_is_named_and_not_the_one_that_was_given(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-32])
    assert refusal(paths[0]).startswith(f"{paths[2]}: tensor 't3' reaches to byte ")


def test_two_sets_in_one_folder_are_kept_apart(tmp_path: Path) -> None:
    one = write_set(tmp_path, stem="one")
    two = write_set(tmp_path, stem="two", first_tensor=10, architecture="qwen3moe")
    assert list(GGUFFile.open(one[2]).tensors) == ["t0", "t1", "t2", "t3"]
    assert GGUFFile.open(two[2]).architecture == "qwen3moe"
