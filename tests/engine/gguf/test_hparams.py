"""A metadata value is what a model file expects, or the error names file, key, value and expectation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktdesk_engine.errors import ModelFileError, UnsupportedError
from ktdesk_engine.gguf.hparams import Metadata

VALUES: dict[str, Any] = {
    "llama.name": "tiny",
    "llama.layers": 3,
    "llama.eps": 1e-5,
    "llama.nan": math.nan,
    "llama.inf": -math.inf,
    "llama.flag": True,
    "llama.heads": np.array([4, 0, 8], np.uint32),
    "llama.many": np.arange(100),
    "llama.floats": np.array([1.0, 2.0, 3.0], np.float32),
    "llama.flags": np.array([True, False, True]),
    "llama.nested": (np.array([1]), np.array([2]), np.array([3])),
    "llama.long": "x" * 1000,
}
HPARAMS = Metadata(Path("m.gguf"), VALUES, prefix="llama.")

Read = Callable[[], Any]


def test_values_of_the_right_type_come_back() -> None:
    assert HPARAMS.string("name") == "tiny"
    assert HPARAMS.integer("layers", minimum=3, maximum=3) == 3
    assert HPARAMS.number("eps", minimum=0) == 1e-5
    assert HPARAMS.boolean("flag") is True
    assert Metadata(Path("m.gguf"), VALUES).integer("llama.layers") == 3


def test_a_whole_number_is_a_number() -> None:
    assert (HPARAMS.number("layers"), type(HPARAMS.number("layers"))) == (3.0, float)


def test_a_default_stands_in_for_a_missing_key_only() -> None:
    assert HPARAMS.string("none", None) is None
    assert HPARAMS.integer("none", 0, minimum=1) == 0
    assert HPARAMS.number("none", 10000.0) == 10000.0
    assert HPARAMS.boolean("none", False) is False
    assert HPARAMS.integer("layers", 99) == 3
    assert (HPARAMS.has("layers"), HPARAMS.has("none"), HPARAMS.has("llama.layers")) == (True, False, False)


def test_numbers_are_those_of_an_array_or_the_one_alone_and_flags_count_as_such() -> None:
    assert HPARAMS.numbers("floats") == (1, 2, 3)
    assert HPARAMS.numbers("flags") == (1, 0, 1)
    assert (HPARAMS.numbers("layers"), HPARAMS.numbers("flag"), HPARAMS.numbers("none")) == ((3,), (1,), ())
    assert [HPARAMS.is_array(key) for key in ("flags", "floats", "layers", "nested", "none")] == [1, 1, 0, 0, 0]
    assert HPARAMS.flags("flags", 3) == (True, False, True)


def test_per_layer_takes_an_array_or_one_value_for_all() -> None:
    assert HPARAMS.per_layer("heads", 3) == (4, 0, 8)
    assert HPARAMS.per_layer("layers", 4) == (3, 3, 3, 3)
    assert HPARAMS.per_layer("none", 2, 7) == (7, 7)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda: HPARAMS.string("none"), "a string"),
        (lambda: HPARAMS.boolean("none"), "true or false"),
        (lambda: HPARAMS.integer("none", minimum=1, maximum=512), "an integer in 1..512"),
        (lambda: HPARAMS.number("none", minimum=0), "a finite number of at least 0"),
        (lambda: HPARAMS.per_layer("none", 2, maximum=9), "an integer, or 2 of them, each of at most 9"),
    ],
)
def test_a_missing_key_without_a_default_is_named(read: Read, expected: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        read()
    assert str(caught.value).startswith(f"m.gguf: metadata key 'llama.none' is missing, {expected} is needed")


@pytest.mark.parametrize(
    ("read", "key", "shown", "expected"),
    [
        (lambda: HPARAMS.string("layers"), "layers", "3", "a string"),
        (lambda: HPARAMS.integer("name"), "name", "'tiny'", "an integer"),
        (lambda: HPARAMS.integer("flag"), "flag", "True", "an integer"),
        (lambda: HPARAMS.integer("eps"), "eps", "1e-05", "an integer"),
        (lambda: HPARAMS.integer("layers", minimum=4), "layers", "3", "an integer of at least 4"),
        (lambda: HPARAMS.integer("layers", maximum=2), "layers", "3", "an integer of at most 2"),
        (lambda: HPARAMS.integer("layers", 3, maximum=2), "layers", "3", "an integer of at most 2"),
        (lambda: HPARAMS.integer("heads"), "heads", "an array of 3: 4, 0, 8", "an integer"),
        (
            lambda: HPARAMS.integer("many"),
            "many",
            "an array of 100: 0, 1, 2, 3, 4, 5, 6, 7, ...",
            "an integer",
        ),
        (lambda: HPARAMS.integer("long"), "long", "'" + "x" * 76 + "...", "an integer"),
        (lambda: HPARAMS.number("nan"), "nan", "nan", "a finite number"),
        (lambda: HPARAMS.number("inf", 1.0), "inf", "-inf", "a finite number"),
        (lambda: HPARAMS.number("flag"), "flag", "True", "a finite number"),
        (lambda: HPARAMS.number("eps", minimum=1, maximum=2), "eps", "1e-05", "a finite number in 1..2"),
        (lambda: HPARAMS.boolean("layers"), "layers", "3", "true or false"),
        (lambda: HPARAMS.numbers("name"), "name", "'tiny'", "a number, or true or false, or an array of them"),
        (lambda: HPARAMS.flags("flags", 2), "flags", "an array of 3: True, False, True", "2 times true or false"),
        (lambda: HPARAMS.flags("heads", 3), "heads", "an array of 3: 4, 0, 8", "3 times true or false"),
        (
            lambda: HPARAMS.per_layer("heads", 2),
            "heads",
            "an array of 3: 4, 0, 8",
            "an integer, or 2 of them, each",
        ),
        (
            lambda: HPARAMS.per_layer("floats", 3),
            "floats",
            "an array of 3: 1.0, 2.0, 3.0",
            "an integer, or 3 of them",
        ),
        (
            lambda: HPARAMS.per_layer("flags", 3),
            "flags",
            "an array of 3: True, False, True",
            "an integer, or 3",
        ),
        (lambda: HPARAMS.per_layer("nested", 3), "nested", "(array([1]), ", "an integer, or 3 of them"),
        (
            lambda: HPARAMS.per_layer("heads", 3, minimum=1),
            "heads",
            "an array of 3: 4, 0, 8",
            "an integer, or 3",
        ),
        (lambda: HPARAMS.per_layer("name", 3), "name", "'tiny'", "an integer, or 3 of them"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(read: Read, key: str, shown: str, expected: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(f"m.gguf: metadata key 'llama.{key}' is {shown}")
    assert f"must be {expected}" in message
    assert "\n" not in message


def test_a_sound_value_that_the_engine_does_not_know_is_named_with_those_it_knows() -> None:
    error = HPARAMS.unsupported("name", "large and huge")
    assert isinstance(error, UnsupportedError)
    problem = "metadata key 'llama.name' is 'tiny', which this engine does not support; it knows large and huge"
    assert str(error) == f"m.gguf: {problem}"


def test_an_integer_beyond_the_precision_of_a_float_is_the_nearest_number() -> None:
    metadata = Metadata(Path("m.gguf"), {"big": 2**64 - 1})
    assert metadata.number("big") == 2.0**64
