"""Metadata by type and range: what a model file reads its numbers through.

Each value is as expected, or a ModelFileError that names file, key, value and what was expected. Knows no
architecture and no key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from ktdesk_engine.errors import ModelFileError, UnsupportedError

T = TypeVar("T")

REQUIRED: Final[Any] = object()
"""The default of a key that the file must have."""


class Metadata:
    """The metadata of one file; every key is looked up with `prefix` before it."""

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self._path = path
        self._values = values
        self._prefix = prefix

    def has(self, key: str) -> bool:
        return self._prefix + key in self._values

    def string(self, key: str, default: T = REQUIRED) -> str | T:
        expected = "a string"
        if self._is_absent(key, default, expected):
            return default
        value = self._values[self._prefix + key]
        if not isinstance(value, str):
            raise self._wrong(key, expected)
        return value

    def boolean(self, key: str, default: T = REQUIRED) -> bool | T:
        expected = "true or false"
        if self._is_absent(key, default, expected):
            return default
        value = self._values[self._prefix + key]
        if not isinstance(value, bool):
            raise self._wrong(key, expected)
        return value

    def integer(
        self, key: str, default: T = REQUIRED, *, minimum: int | None = None, maximum: int | None = None
    ) -> int | T:
        """The range is that of the file's value; the default may lie outside."""
        expected = _expected("an integer", minimum, maximum)
        if self._is_absent(key, default, expected):
            return default
        value = self._values[self._prefix + key]
        if not _is_integer(value, minimum, maximum):
            raise self._wrong(key, expected)
        return int(value)

    def number(
        self, key: str, default: T = REQUIRED, *, minimum: float | None = None, maximum: float | None = None
    ) -> float | T:
        """A finite number; one stored as an integer counts. The range is that of the file's value."""
        expected = _expected("a finite number", minimum, maximum)
        if self._is_absent(key, default, expected):
            return default
        value = self._values[self._prefix + key]
        if type(value) not in (int, float) or not math.isfinite(value) or not _inside(value, minimum, maximum):
            raise self._wrong(key, expected)
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """All of an array, or the one that stands alone, true and false as 1 and 0; none where the key is absent."""
        if not self.has(key):
            return ()
        value = self._values[self._prefix + key]
        values = value.tolist() if isinstance(value, np.ndarray) else [value]
        if not all(type(item) in (bool, int, float) for item in values):
            raise self._wrong(key, "a number, or true or false, or an array of them")
        return tuple(float(item) for item in values)

    def is_array(self, key: str) -> bool:
        """Of numbers, or of true and false."""
        return isinstance(self._values.get(self._prefix + key), np.ndarray)

    def flags(self, key: str, num_layers: int) -> tuple[bool, ...]:
        """True or false for each layer, out of an array of them."""
        value = self._values[self._prefix + key]
        if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or value.shape != (num_layers,):
            raise self._wrong(key, f"{num_layers} times true or false")
        return tuple(value.tolist())

    def per_layer(
        self,
        key: str,
        num_layers: int,
        default: int = REQUIRED,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> tuple[int, ...]:
        """An integer for each layer, out of an array of them or one value for all.

        `num_layers` counts what the file counts, next-token blocks included.
        """
        expected = _expected(f"an integer, or {num_layers} of them, each", minimum, maximum)
        if self._is_absent(key, default, expected):
            return (default,) * num_layers
        value = self._values[self._prefix + key]
        values = value.tolist() if isinstance(value, np.ndarray) else [value] * num_layers
        if len(values) != num_layers or not all(_is_integer(item, minimum, maximum) for item in values):
            raise self._wrong(key, expected)
        return tuple(values)

    def unsupported(self, key: str, supported: str) -> UnsupportedError:
        """The error for a sound value that the engine does not know, with those that it does."""
        shown = _shown(self._values[self._prefix + key]) if self.has(key) else "missing"
        problem = f"metadata key {self._prefix + key!r} is {shown}, which this engine does not support"
        return UnsupportedError(f"{self._path}: {problem}; it knows {supported}")

    def _is_absent(self, key: str, default: Any, expected: str) -> bool:
        """Whether the default applies; ModelFileError where there is neither key nor default."""
        if self.has(key):
            return False
        if default is REQUIRED:
            problem = f"metadata key {self._prefix + key!r} is missing, {expected} is needed"
            raise ModelFileError(self._path, f"{problem}: the file is incomplete; take another copy of the model")
        return True

    def _wrong(self, key: str, expected: str) -> ModelFileError:
        shown = _shown(self._values[self._prefix + key])
        problem = f"metadata key {self._prefix + key!r} is {shown}, but must be {expected}"
        return ModelFileError(self._path, f"{problem}: the file is damaged; take another copy of the model")


def _is_integer(value: Any, minimum: int | None, maximum: int | None) -> bool:
    return type(value) is int and _inside(value, minimum, maximum)


def _inside(value: float, minimum: float | None, maximum: float | None) -> bool:
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def _expected(kind: str, minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f"{kind} in {minimum}..{maximum}"
    if minimum is not None:
        return f"{kind} of at least {minimum}"
    return kind if maximum is None else f"{kind} of at most {maximum}"


def _shown(value: Any) -> str:
    """On one line, and short."""
    if isinstance(value, np.ndarray):
        items = ", ".join(str(item) for item in value[:8].tolist())
        return f"an array of {len(value)}: {items}{', ...' if len(value) > 8 else ''}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
