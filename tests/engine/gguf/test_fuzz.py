"""Whatever happened to the bytes of a file, it opens cleanly or ends in an EngineError."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ktdesk_engine.errors import EngineError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.values import StringArray

Flips = list[tuple[int, int]]


@pytest.fixture(scope="module")
def sound_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file with a value of every kind, and tensors of several types."""
    path = tmp_path_factory.mktemp("fuzz") / "sound.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(32)
    writer.add_block_count(2)
    writer.add_float32("llama.rope.freq_base", 1e4)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("llama.attention.head_count", [4, 4])
    writer.add_array("tokenizer.ggml.tokens", ["a", "ä", "漢", "", "<s>"])
    writer.add_array("nested", [["x", "y"], ["z"]])
    writer.add_uint16("split.count", 1)
    writer.add_tensor("token_embd.weight", np.ones((5, 8), np.float32))
    writer.add_tensor("blk.0.w", np.ones((3, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.odd", np.ones((2, 2), np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def read_everything(path: Path) -> None:
    """Open the file and look at all there is in it. An EngineError at one place is a clean end of that."""
    with GGUFFile.open(path) as file:
        for value in file.metadata.values():
            tolerate(lambda value=value: list(flattened(value)))
        for name, tensor in file.tensors.items():
            assert tensor.num_bytes > 0
            assert tensor.num_values > 0
            tolerate(lambda name=name: file.data(name).sum())
        tolerate(lambda: file.hparams().integer("block_count", minimum=1, maximum=512))
        tolerate(lambda: file.hparams().number("rope.freq_base", 1e4, minimum=1))
        tolerate(lambda: file.hparams().per_layer("attention.head_count", 2, minimum=1))
        tolerate(lambda: file.keys.boolean("tokenizer.ggml.add_bos_token", False))


def tolerate(read: Any) -> None:
    error: EngineError | None = None
    try:
        read()
    except EngineError as caught:
        error = caught
    assert "\n" not in str(error)


def flattened(value: Any) -> Iterator[Any]:
    if isinstance(value, (StringArray, tuple, np.ndarray)):
        for item in value:
            yield from flattened(item)
    else:
        yield value


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    tolerate(lambda: read_everything(path))
    assert path.read_bytes() == data


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "damaged.gguf"


fuzz = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def test_the_sound_file_reads_in_full(sound_bytes: bytes, scratch: Path) -> None:
    scratch.write_bytes(sound_bytes)
    read_everything(scratch)
    assert GGUFFile.open(scratch).hparams().integer("block_count") == 2


@fuzz
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes_end_cleanly(flips: Flips, sound_bytes: bytes, scratch: Path) -> None:
    data = bytearray(sound_bytes)
    for position, mask in flips:
        data[position % len(data)] ^= mask
    check(scratch, bytes(data))


@fuzz
@given(
    position=st.integers(0, 10**6),
    word=st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1]),
)
@example(position=8, word=2**64 - 1)
@example(position=16, word=2**63)
def test_extreme_words_anywhere_end_cleanly(position: int, word: int, sound_bytes: bytes, scratch: Path) -> None:
    start = position % (len(sound_bytes) - 8)
    check(scratch, sound_bytes[:start] + word.to_bytes(8, "little") + sound_bytes[start + 8 :])


def test_every_truncation_ends_cleanly(sound_bytes: bytes, scratch: Path) -> None:
    scratch.write_bytes(sound_bytes)
    used = max(tensor.end for tensor in GGUFFile.open(scratch).tensors.values())  # padding follows
    for length in range(used):
        scratch.write_bytes(sound_bytes[:length])
        with pytest.raises(EngineError):
            GGUFFile.open(scratch)


@fuzz
@given(position=st.integers(0, 10**6), inserted=st.binary(min_size=1, max_size=16))
def test_inserted_bytes_end_cleanly(position: int, inserted: bytes, sound_bytes: bytes, scratch: Path) -> None:
    start = position % len(sound_bytes)
    check(scratch, sound_bytes[:start] + inserted + sound_bytes[start:])


@fuzz
@given(data=st.binary(max_size=256))
def test_noise_after_the_magic_ends_cleanly(data: bytes, scratch: Path) -> None:
    check(scratch, b"GGUF\3\0\0\0" + data)
    check(scratch, data)
