"""Damaged headers, each put together byte by byte, end in one line that names what is wrong."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from ktdesk_engine.errors import ModelFileError, UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.types import FOREIGN_TYPES
from ktdesk_engine.gguf.values import MAX_STRING_BYTES, StringArray, ValueType
from ktdesk_engine.quants.formats import WeightType


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: bytes) -> bytes:
    return u64(len(value)) + value


def key(name: bytes, value_type: int, value: bytes) -> bytes:
    return text(name) + u32(value_type) + value


def strings_key(name: bytes, count: int, strings: bytes) -> bytes:
    return key(name, ValueType.ARRAY, u32(ValueType.STRING) + u64(count) + strings)


def tensor(name: bytes = b"t", shape: tuple[int, ...] = (8,), type_id: int = WeightType.F32, offset: int = 0) -> bytes:
    dims = b"".join(map(u64, shape))
    return text(name) + u32(len(shape)) + dims + u32(type_id) + u64(offset)


def header(
    *,
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
    keys: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
) -> bytes:
    """A header whose counts are right unless they are given."""
    counts = u64(len(tensors) if num_tensors is None else num_tensors)
    counts += u64(len(keys) if num_keys is None else num_keys)
    return b"GGUF" + u32(version) + counts + b"".join(keys) + b"".join(tensors)


def padded(data: bytes, num_data_bytes: int = 0, alignment: int = 32) -> bytes:
    """A header, padded to the alignment, and a data section of zeros."""
    return data + bytes(-len(data) % alignment) + bytes(num_data_bytes)


def open_bytes(tmp_path: Path, data: bytes) -> GGUFFile:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return GGUFFile.open(path)


def refusal(tmp_path: Path, data: bytes) -> str:
    """The one line that opening such a file ends in."""
    with pytest.raises(ModelFileError) as caught:
        open_bytes(tmp_path, data)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'model.gguf'}: ")
    assert "\n" not in message
    return message.partition(": ")[2]


@pytest.mark.parametrize("version", [2, 3])
def test_versions_two_and_three_are_read(version: int, tmp_path: Path) -> None:
    file = open_bytes(tmp_path, padded(header(version=version, tensors=(tensor(),)), 32))
    assert file.version == version
    assert file.data("t").tolist() == [0] * 32


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (1, "GGUF version 1, of August 2023, is not read"),
        (0, "GGUF version 0 is not known"),
        (4, "GGUF version 4 is not known (2 and 3 are): the file is damaged, or ktdesk is too old"),
        (3 << 24, "GGUF version 3 in big-endian order: convert it with gguf-convert-endian"),
        (2 << 24, "GGUF version 2 in big-endian order"),
    ],
)
def test_another_version_or_byte_order_is_named(version: int, problem: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, header(version=version)).startswith(problem)


HUGE = 2**64 - 1


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (header(num_tensors=HUGE), f"the number of tensors is {HUGE:,}, but at most 0 can follow"),
        (header(num_keys=HUGE), f"the number of metadata keys is {HUGE:,}, but at most 0 can follow"),
        (
            header(num_keys=1) + u64(HUGE) + bytes(9),
            f"metadata key 0 is {HUGE:,} bytes long, at most 65,535 are",
        ),
        (header(keys=(key(b"k", ValueType.STRING, u64(HUGE)),)), "metadata key 'k' is 18,446,"),
        (
            header(keys=(key(b"k", ValueType.STRING, u64(9)),)),
            "metadata key 'k' takes 9 bytes from byte 45 on, but",
        ),
        (header(keys=(strings_key(b"k", HUGE, b""),)), "the length of metadata key 'k' is 18,446,"),
        (
            header(keys=(strings_key(b"k", 3, text(b"a") + text(b"b") + u64(HUGE)),)),
            "metadata key 'k' has 3 strings, but only 2 end inside the file",
        ),
        (
            header(keys=(strings_key(b"k", 2, text(b"abcdefghijkl")),)),
            "metadata key 'k' has 2 strings, but only 1 end inside the file",
        ),
        (
            header(keys=(key(b"k", ValueType.ARRAY, u32(ValueType.UINT32) + u64(2**62)),)),
            "the length of metadata key 'k' is 4,611,686,018,427,387,904, but at most 0 can follow",
        ),
        (
            header(keys=(key(b"k", ValueType.ARRAY, u32(ValueType.ARRAY) + u64(2**40)),)),
            "the length of metadata key 'k' is 1,099,511,627,776, but at most 0 can follow",
        ),
        (
            header(keys=(key(b"k", ValueType.ARRAY, (u32(ValueType.ARRAY) + u64(1)) * 500),)),
            "metadata key 'k'[0][0][0][0] nests arrays more than 4 deep",
        ),
        (
            header(tensors=(u64(64) + bytes(80),)),
            "the name of tensor 0 is 64 bytes long, at most 63 are allowed",
        ),
    ],
)
def test_absurd_counts_and_lengths_are_refused_at_once(data: bytes, problem: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        assert refusal(tmp_path, data).startswith(problem)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ((key(b"k", 13, b""),), "metadata key 'k' has the unknown value type 13 (0..12 are known)"),
        ((key(b"k", ValueType.UINT8, b"\1"),) * 2, "metadata key 'k' is there twice"),
        ((key(b"k" * 9000, 13, b""),), f"metadata key '{'k' * 76}... has the unknown value type 13"),
        ((key(b"", ValueType.UINT8, b"\1"),), "metadata key 0 is empty"),
        ((key(b"\xff", ValueType.UINT8, b"\1"),), r"metadata key 0 is not UTF-8: b'\xff'"),
        ((key(b"k", ValueType.STRING, text(b"a\xff")),), r"metadata key 'k' is not UTF-8: b'a\xff'"),
        ((key(b"k", ValueType.BOOL, b"\2"),), "metadata key 'k' holds 2 as a boolean, which must be 0 or 1"),
        (
            (key(b"k", ValueType.ARRAY, u32(ValueType.BOOL) + u64(3) + b"\0\1\7"),),
            "metadata key 'k' holds 7 as a boolean",
        ),
        (
            (key(b"general.alignment", ValueType.UINT32, u32(0)),),
            "general.alignment is 0, not a power of two",
        ),
        (
            (key(b"general.alignment", ValueType.UINT32, u32(48)),),
            "general.alignment is 48, not a power of two",
        ),
        (
            (key(b"general.alignment", ValueType.UINT64, u64(32)),),
            "general.alignment has the type UINT64, not UINT32",
        ),
        (
            (key(b"general.alignment", ValueType.STRING, text(b"32")),),
            "general.alignment has the type STRING",
        ),
    ],
)
def test_a_damaged_key_is_named(keys: tuple[bytes, ...], problem: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, padded(header(keys=keys)))
    assert message.startswith(problem)
    assert message.endswith("the file is damaged or was cut off: fetch it again")


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ((tensor(b""),), "tensor 0 has an empty name"),
        ((tensor(b"\xc3"),), r"the name of tensor 0 is not UTF-8: b'\xc3'"),
        ((tensor(), tensor(offset=32)), "tensor 't' is listed twice"),
        ((tensor(shape=()) + bytes(8),), "tensor 't' has 0 dimensions, 1 to 4 are allowed"),
        ((tensor(shape=(1,) * 5),), "tensor 't' has 5 dimensions, 1 to 4 are allowed"),
        ((tensor(shape=(8, 0)),), "tensor 't' of shape (8, 0) has no values"),
        (
            (tensor(shape=(2**40, 2**40)),),
            "tensor 't' of shape (1099511627776, 1099511627776) has more values than",
        ),
        (
            (tensor(shape=(2**32, 2**32)),),
            "tensor 't' of shape (4294967296, 4294967296) has more values than 63",
        ),
        ((tensor(shape=(2**62,)),), "tensor 't' reaches to byte 18,446,744,073,709,551,680 of a file of 128"),
        (
            (tensor(shape=(40,), type_id=WeightType.Q8_0),),
            "tensor 't' of shape (40,) has rows that are no whole number of Q8_0 blocks of 32 values",
        ),
        ((tensor(offset=8),), "tensor 't' has the offset 8, which is no multiple of the alignment 32"),
        ((tensor(offset=64),), "tensor 't' reaches to byte 160 of a file of 128"),
        ((tensor(offset=2**63),), "tensor 't' reaches to byte 9,223,372,036,854,775,"),
        ((tensor(), tensor(b"u")), "tensors 't' and 'u' overlap at byte 96"),
        ((tensor(b"u", offset=32), tensor(shape=(9,))), "tensors 't' and 'u' overlap at byte 128"),
        ((tensor(type_id=99), tensor(b"u", type_id=99)), "tensors 't' and 'u' overlap at byte 96"),
        (
            (tensor(type_id=99, offset=2**40),),
            "tensor 't' reaches to byte 1,099,511,627,841 of a file of 128",
        ),
    ],
)
def test_a_damaged_tensor_is_named(tensors: tuple[bytes, ...], problem: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, padded(header(tensors=tensors), 64))
    assert message.startswith(problem)
    assert message.endswith("the file is damaged or was cut off: fetch it again")


def test_a_name_of_63_bytes_and_gaps_between_tensors_are_allowed(tmp_path: Path) -> None:
    name = b"n" * 63
    file = open_bytes(tmp_path, padded(header(tensors=(tensor(name), tensor(b"u", offset=128))), 160))
    assert file.tensors["u"].offset - file.tensors[name.decode()].offset == 128


def test_tensors_may_be_listed_in_another_order_than_they_lie(tmp_path: Path) -> None:
    file = open_bytes(tmp_path, padded(header(tensors=(tensor(offset=32), tensor(b"u"))), 64))
    assert list(file.tensors) == ["t", "u"]
    assert file.tensors["t"].offset == file.tensors["u"].offset + 32


def test_a_file_cut_off_inside_its_data_names_the_tensor_and_both_sizes(tmp_path: Path) -> None:
    whole = padded(header(tensors=(tensor(), tensor(b"u", offset=32))), 64)
    assert refusal(tmp_path, whole[:-1]).startswith(
        f"tensor 'u' reaches to byte {len(whole)} of a file of {len(whole) - 1}"
    )


@pytest.mark.parametrize(("type_id", "foreign"), [*FOREIGN_TYPES.items(), (9999, None)])
def test_an_unreadable_type_can_be_listed_but_not_read(type_id: int, foreign: object, tmp_path: Path) -> None:
    tensors = (tensor(b"odd", (256,), type_id), tensor(b"fine", (8,), offset=4096))
    file = open_bytes(tmp_path, padded(header(tensors=tensors), 4128))
    odd = file.tensors["odd"]
    name = FOREIGN_TYPES[type_id].name if foreign else "type 9999"
    assert (odd.type_name, odd.is_readable) == (name, False)
    assert 0 < odd.num_bytes <= 4096
    assert file.data("fine").size == 32
    with pytest.raises(UnsupportedError, match=rf"model\.gguf: tensor 'odd' has the type {name} \({type_id}\)"):
        file.data("odd")


@pytest.mark.parametrize(("type_id", "num_bytes"), [(28, 2048), (15, 292), (5, 4096)])
def test_the_size_of_an_unreadable_tensor_is_computed_or_reaches_to_the_next(
    type_id: int, num_bytes: int, tmp_path: Path
) -> None:
    tensors = (tensor(b"odd", (256,), type_id), tensor(b"next", (8,), offset=4096))
    assert open_bytes(tmp_path, padded(header(tensors=tensors), 4128)).tensors["odd"].num_bytes == num_bytes


def test_empty_arrays_are_read_at_the_very_end_of_a_file(tmp_path: Path) -> None:
    types = {b"strings": ValueType.STRING, b"floats": ValueType.FLOAT32, b"flags": ValueType.BOOL}
    for name, item_type in types.items():
        array = key(name, ValueType.ARRAY, u32(item_type) + u64(0))
        assert list(open_bytes(tmp_path, header(keys=(array,))).metadata[name.decode()]) == []


def test_a_string_too_long_to_be_one_is_refused_alone_and_in_an_array(tmp_path: Path) -> None:
    long = u64(MAX_STRING_BYTES + 1)
    for keys in (key(b"k", ValueType.STRING, long), strings_key(b"k", 2, text(b"a") + long)):
        path = tmp_path / "model.gguf"
        path.write_bytes(header(keys=(keys,)))
        with path.open("r+b") as file:  # sparse: the length is inside the file, and still refused
            file.truncate(2 * MAX_STRING_BYTES)
        with pytest.raises(ModelFileError, match="is 67,108,865 bytes long, at most 67,108,864 are allowed"):
            GGUFFile.open(path)


def num_calls(function: Callable[[], object]) -> int:
    """How often something is called in it, in Python or from it."""
    num = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal num
        num += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return num


def test_a_header_with_260000_tokens_and_merges_opens_without_a_look_into_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls a string, to note where it lies, and none is decoded: 0.06 s on one core of a desktop of 2023."""
    count, num_strings = 260_000, 520_000
    tokens = b"".join(text(b"token-%d" % index) for index in range(count))
    merges = b"".join(text(b"to ken-%d" % index) for index in range(count))
    keys = (
        strings_key(b"tokenizer.ggml.tokens", count, tokens),
        strings_key(b"tokenizer.ggml.merges", count, merges),
        key(
            b"tokenizer.ggml.token_type",
            ValueType.ARRAY,
            u32(ValueType.INT32) + u64(count) + bytes(4 * count),
        ),
    )
    path = tmp_path / "model.gguf"
    path.write_bytes(padded(header(keys=keys, tensors=(tensor(),)), 32))
    with monkeypatch.context() as patched:
        patched.setattr(StringArray, "_decoded", lambda *_: pytest.fail("a string was decoded"))
        calls = num_calls(lambda: GGUFFile.open(path))
    assert calls < 2 * num_strings + 1000
    file = GGUFFile.open(path)
    assert file.metadata["tokenizer.ggml.merges"][count - 1] == f"to ken-{count - 1}"
    assert len(file.metadata["tokenizer.ggml.token_type"]) == count
