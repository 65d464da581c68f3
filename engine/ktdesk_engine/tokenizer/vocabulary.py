"""The vocabulary of a GGUF file: its tokens, their types, and the ids with a special task. Checked here.

Knows nothing about cutting or merging text. A file whose parts contradict each other is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ktdesk_engine.errors import ModelFileError

KEY = "tokenizer.ggml."
NO_TOKEN = 2**32 - 1  # -1 in an unsigned field: some converters write it for "none"


class TokenType(IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


HIDDEN = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.UNUSED})
"""Types that are no part of the text a reader sees."""


class MetadataSource(Protocol):
    """What is needed of a GGUF file."""

    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Vocabulary:
    """Tokens 0..V-1 and what the file says about them."""

    path: Path
    tokens: list[str]
    """In the file's spelling: byte-level BPE writes bytes as letters, SentencePiece a space as U+2581."""
    types: np.ndarray
    """A TokenType a token: int8, (V,)."""
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    """Ends a turn, where that is not what eos does."""
    eom_id: int | None
    """Ends a message after which the model waits for a tool."""
    unknown_id: int | None
    padding_id: int | None
    ids: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _unique_ids(self.path, self.tokens))

    def of_types(self, *types: TokenType) -> dict[str, int]:
        """Text to id of the tokens of these types; those without text are left out."""
        chosen = np.flatnonzero(np.isin(self.types, types)).tolist()
        return {self.tokens[token_id]: token_id for token_id in chosen if self.tokens[token_id]}


def read_vocabulary(file: MetadataSource, default_ids: Mapping[str, int] | None = None) -> Vocabulary:
    """The vocabulary in the file. default_ids: bos, eos or unknown where the file does not name them."""
    tokens = read_strings(file, "tokens")
    if not tokens:
        raise ModelFileError(file.path, f"{KEY}tokens is empty; the file has no vocabulary")
    defaults = default_ids or {}
    special = {
        f"{name}_id": _read_token_id(file, name, len(tokens), defaults.get(name))
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    return Vocabulary(path=file.path, tokens=tokens, types=_read_types(file, len(tokens)), **special)


def read_strings(file: MetadataSource, name: str) -> list[str]:
    """The array of strings `tokenizer.ggml.NAME`."""
    value = file.metadata.get(KEY + name)
    if value is None:
        raise ModelFileError(file.path, f"{KEY}{name} is missing; the file cannot be used for text")
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ModelFileError(file.path, f"{KEY}{name} must be an array of strings: {_shown(value)}")
    strings = list(value)
    if not set(map(type, strings)) <= {str}:
        raise ModelFileError(file.path, f"{KEY}{name} must hold strings only")
    return strings


def read_numbers(file: MetadataSource, name: str, length: int) -> np.ndarray | None:
    """The array of numbers `tokenizer.ggml.NAME`, one per token, or None where the file has none."""
    value = file.metadata.get(KEY + name)
    if value is None:
        return None
    numbers = np.asarray(value)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise ModelFileError(file.path, f"{KEY}{name} must be an array of numbers: {_shown(value)}")
    if len(numbers) != length:
        raise ModelFileError(
            file.path, f"{KEY}{name} has {len(numbers)} values for {length} tokens; they must be as many"
        )
    return numbers


def read_flag(file: MetadataSource, name: str, default: bool) -> bool:
    """The boolean `tokenizer.ggml.NAME`."""
    value = file.metadata.get(KEY + name, default)
    if not isinstance(value, (bool, np.bool_)):
        raise ModelFileError(file.path, f"{KEY}{name} must be true or false: {_shown(value)}")
    return bool(value)


def _read_types(file: MetadataSource, num_tokens: int) -> np.ndarray:
    """One type a token. Without the array every token is normal, so no special token can be recognised."""
    types = read_numbers(file, "token_type", num_tokens)
    if types is None:
        return np.full(num_tokens, TokenType.NORMAL, np.int8)
    known = np.isin(types, list(TokenType))
    if not known.all():
        token_id = int(np.argmin(known))
        raise ModelFileError(file.path, f"{KEY}token_type of token {token_id} is {types[token_id]}; known are 0..6")
    return types.astype(np.int8)


def _read_token_id(file: MetadataSource, name: str, num_tokens: int, default: int | None) -> int | None:
    """The id `tokenizer.ggml.NAME_token_id`."""
    key = f"{KEY}{name}_token_id"
    value = file.metadata.get(key)
    if value is None:
        return default if default is not None and default < num_tokens else None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ModelFileError(file.path, f"{key} must be an integer: {_shown(value)}")
    if value in (-1, NO_TOKEN):
        return None
    if not 0 <= value < num_tokens:
        raise ModelFileError(file.path, f"{key} is {value}, but the tokens are 0..{num_tokens - 1}")
    return int(value)


def _unique_ids(path: Path, tokens: Sequence[str]) -> dict[str, int]:
    """Token to id. Two tokens of one text would make encoding ambiguous; only empty ones may repeat."""
    ids = {token: token_id for token_id, token in enumerate(tokens) if token}
    if len(ids) + tokens.count("") != len(tokens):
        token_id, token = next((i, token) for i, token in enumerate(tokens) if token and ids[token] != i)
        raise ModelFileError(path, f"tokens {token_id} and {ids[token]} are both {token!r}; a token must be there once")
    return ids


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
