"""Tokens to text, one at a time: whole characters only, each as soon as its last byte is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

INCOMPLETE = re.compile(
    rb"""(?x:
    [\xC2-\xDF]
    | \xE0 [\xA0-\xBF]?  |  [\xE1-\xEC\xEE\xEF] [\x80-\xBF]?  |  \xED [\x80-\x9F]?
    | \xF0 (?: [\x90-\xBF] [\x80-\xBF]? )?  |  [\xF1-\xF3] [\x80-\xBF]{0,2}  |  \xF4 (?: [\x80-\x8F] [\x80-\xBF]? )?
    )\Z"""
)
"""The beginning of a character at the end of some bytes, by the table of well-formed UTF-8 in the Unicode standard.

Python's own incremental decoder waits for a third byte after half a surrogate, which can become no character.
"""


class Piece(NamedTuple):
    """What one token adds to a text."""

    data: bytes
    hidden: bool
    """Left out of the text that a reader sees."""
    begins_word: bool
    """After it the next token's leading space is not part of the text: encoding put it there."""


class StreamDecoder:
    """Turns ids into text piece by piece.

    Bytes that may still become a character are held back; bytes that cannot become U+FFFD at once. What push
    and flush return, joined, is what decoding all ids at once gives.
    """

    def __init__(
        self,
        piece_of: Callable[[int], Piece],
        *,
        skip_special: bool,
        at_start: bool,
        shown_ids: frozenset[int] = frozenset(),
    ) -> None:
        self._piece_of = piece_of
        self._skip_special = skip_special
        self._shown_ids = shown_ids
        self._drop_space = at_start
        self._held = b""

    def push(self, token_id: int) -> str:
        """The text that token_id completes, maybe none."""
        piece = self._piece_of(token_id)
        data = self._held + self._data(piece._replace(hidden=False) if token_id in self._shown_ids else piece)
        incomplete = INCOMPLETE.search(data, max(0, len(data) - 3))
        self._held = data[incomplete.start() :] if incomplete else b""
        return data[: len(data) - len(self._held)].decode("utf-8", "replace")

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        held, self._held = self._held, b""
        return held.decode("utf-8", "replace")

    def _data(self, piece: Piece) -> bytes:
        data = b"" if piece.hidden and self._skip_special else piece.data
        if piece.begins_word:
            self._drop_space = True
        elif self._drop_space and data:
            self._drop_space = False
            return data.removeprefix(b" ")
        return data
