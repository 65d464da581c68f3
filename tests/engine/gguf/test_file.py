"""Sound GGUF files, written by the independent gguf package, are read as they were meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ktdesk_engine.errors import ModelFileError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.values import StringArray
from ktdesk_engine.quants.formats import BLOCKS, WeightType


def write_model(path: Path, add: Callable[[Any], None] = lambda writer: None) -> Path:
    """A file of the architecture 'llama' with what `add` adds to it."""
    writer = gguf.GGUFWriter(path, "llama")
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("add", "value"),
    [
        ("uint8", 255),
        ("int8", -128),
        ("uint16", 65535),
        ("int16", -32768),
        ("uint32", 2**32 - 1),
        ("int32", -(2**31)),
        ("uint64", 2**64 - 1),
        ("int64", -(2**63)),
        ("float32", -0.15625),
        ("float64", 0.1),
        ("bool", True),
        ("bool", False),
        ("string", "größer 漢字 🙂"),
        ("string", ""),
    ],
)
def test_a_value_comes_back_as_the_python_value_that_was_written(add: str, value: Any, tmp_path: Path) -> None:
    def add_value(writer: Any) -> None:
        if value == "":  # the writer leaves out an empty string, but for this way
            writer.add_key_value("k", "", gguf.GGUFValueType.STRING)
        else:
            getattr(writer, f"add_{add}")("k", value)

    found = GGUFFile.open(write_model(tmp_path / "m.gguf", add_value)).metadata["k"]
    assert found == value
    assert type(found) is type(value)


def test_arrays_of_numbers_come_as_numpy_arrays(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_array("ints", [1, -2, 3])
        writer.add_array("floats", [0.5, -1.5])
        writer.add_array("bools", [True, False, True])

    metadata = GGUFFile.open(write_model(tmp_path / "m.gguf", add)).metadata
    assert metadata["ints"].tolist() == [1, -2, 3]
    assert metadata["floats"].tolist() == [0.5, -1.5]
    assert metadata["bools"].tolist() == [True, False, True]
    assert [metadata[key].dtype.kind for key in ("ints", "floats", "bools")] == ["i", "f", "b"]


def test_an_array_of_strings_is_a_sequence_that_decodes_on_demand(tmp_path: Path) -> None:
    words = ["a", "", "Ġhello", "漢字", "🙂"]
    path = write_model(tmp_path / "m.gguf", lambda writer: writer.add_array("words", words))
    found = GGUFFile.open(path).metadata["words"]
    assert isinstance(found, StringArray)
    assert list(found) == words
    assert (len(found), found[2], found[-1]) == (5, "Ġhello", "🙂")
    assert list(found[1:3]) == words[1:3]
    assert found[::-2] == words[::-2]
    assert (found.raw(3), found.raw(-1)) == ("漢字".encode(), "🙂".encode())
    for outside in (5, -6):
        with pytest.raises(IndexError):
            found[outside]
        with pytest.raises(IndexError):
            found.raw(outside)


def test_a_string_that_is_not_utf8_is_an_error_only_when_it_is_decoded(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", lambda writer: writer.add_array("words", [b"fine", b"\xff\xfe"]))
    words = GGUFFile.open(path).metadata["words"]
    assert words[0] == "fine"
    assert words.raw(1) == b"\xff\xfe"
    with pytest.raises(ModelFileError, match=r"'words'\[1\] is not UTF-8: b'\\xff\\xfe'"):
        words[1]


def test_arrays_of_arrays_come_as_tuples(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", lambda writer: writer.add_array("pairs", [[1, 2], [3]]))
    pairs = GGUFFile.open(path).metadata["pairs"]
    assert [item.tolist() for item in pairs] == [[1, 2], [3]]


@pytest.mark.parametrize("weight_type", list(WeightType))
@pytest.mark.parametrize("shape", [(512,), (256, 3), (256, 3, 4), (256, 3, 4, 2)])
def test_data_is_the_tensors_bytes_with_a_row_last(
    weight_type: WeightType, shape: tuple[int, ...], tmp_path: Path
) -> None:
    block = BLOCKS[weight_type]
    width = shape[0] // block.values * block.bytes
    want = random_bytes(*reversed(shape[1:]), width)

    def add(writer: Any) -> None:
        writer.add_tensor("before", np.arange(3, dtype=np.float32))
        writer.add_tensor("t", want, raw_dtype=gguf.GGMLQuantizationType(int(weight_type)))

    with GGUFFile.open(write_model(tmp_path / "m.gguf", add)) as file:
        tensor = file.tensors["t"]
        assert (tensor.shape, tensor.type, tensor.num_bytes) == (shape, weight_type, want.size)
        assert tensor.type_name == weight_type.name
        np.testing.assert_array_equal(file.data("t"), want)
        np.testing.assert_array_equal(file.data("before").view(np.float32), [0, 1, 2])


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_any_power_of_two_is_honoured_as_alignment(alignment: int, tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_custom_alignment(alignment)
        for index in range(3):
            writer.add_tensor(f"t{index}", np.full(index + 1, index, np.float32))

    file = GGUFFile.open(write_model(tmp_path / "m.gguf", add))
    for index in range(3):
        assert file.tensors[f"t{index}"].offset % alignment == 0
        assert file.data(f"t{index}").view(np.float32).tolist() == [index] * (index + 1)


def test_everything_agrees_with_the_gguf_packages_reader(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_block_count(2)
        for index in range(20):
            writer.add_tensor(f"blk.{index}.w", random_bytes(index + 1, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    path = write_model(tmp_path / "m.gguf", add)
    oracle = gguf.GGUFReader(path)
    file = GGUFFile.open(path)
    assert list(file.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        info = file.tensors[tensor.name]
        assert (info.offset, info.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert info.shape == tuple(tensor.shape.tolist())
        np.testing.assert_array_equal(file.data(tensor.name), tensor.data)
    for key, value in file.metadata.items():
        assert value == oracle.get_field(key).contents()


def test_a_view_is_of_the_file_itself_and_cannot_be_written_to(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", lambda writer: writer.add_tensor("t", np.ones(4, np.float32)))
    before = path.read_bytes()
    file = GGUFFile.open(path)
    data = file.data("t")
    assert np.shares_memory(data, file.data("t"))
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1
    file.close()
    assert path.read_bytes() == before


def test_views_and_metadata_outlive_the_file(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_array("words", ["one", "two"])
        writer.add_array("numbers", [1, 2])
        writer.add_tensor("t", np.arange(4, dtype=np.float32))

    with GGUFFile.open(write_model(tmp_path / "m.gguf", add)) as file:
        data, metadata = file.data("t"), file.metadata
    with pytest.raises(ValueError, match="closed"):
        file.data("t")
    file.close()
    del file
    assert data.view(np.float32).tolist() == [0, 1, 2, 3]
    assert (list(metadata["words"]), metadata["numbers"].tolist()) == (["one", "two"], [1, 2])


def test_a_file_without_tensors_opens(tmp_path: Path) -> None:
    file = GGUFFile.open(str(write_model(tmp_path / "vocabulary.gguf")))
    assert len(file.tensors) == 0
    assert file.shards == (file.path,) == (tmp_path / "vocabulary.gguf",)


def test_hparams_are_the_keys_of_the_architecture(tmp_path: Path) -> None:
    file = GGUFFile.open(write_model(tmp_path / "m.gguf", lambda writer: writer.add_block_count(2)))
    assert file.architecture == "llama"
    assert file.hparams().integer("block_count", minimum=1) == 2
    assert file.keys.integer("llama.block_count") == 2


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = GGUFFile.open(write_model(tmp_path / "m.gguf"))
    for ask in (file.data, file.tensor):
        with pytest.raises(ModelFileError, match=r"m\.gguf: tensor 'output\.weight' is missing"):
            ask("output.weight")
