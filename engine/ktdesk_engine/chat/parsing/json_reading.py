"""JSON inside a model's text: where a value ends, and its text passed on while it still comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from ktdesk_engine.chat.parsing.parts import Part, Steps
from ktdesk_engine.chat.parsing.text_source import TextSource

CLOSING = {"{": "}", "[": "]"}


class Scanned(NamedTuple):
    text: str
    """The part of it that belongs to the value."""
    num_characters: int
    """How many characters of the input that was."""
    is_done: bool


class ValueScan:
    """Follows one JSON value through pieces of text, to find its end. Raw control characters inside of strings,
    which JSON does not allow and models write, come out escaped."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._is_scalar = False

    def push(self, text: str) -> Scanned:
        written: list[str] = []
        for i, character in enumerate(text):
            if self._is_scalar and (character in ",}]<`" or character.isspace()):
                return Scanned("".join(written), i, True)
            written.append(self._written(character))
            if self._depth == 0 and not self._in_string and not self._is_scalar:
                return Scanned("".join(written), i + 1, True)
        return Scanned("".join(written), len(text), False)

    def _written(self, character: str) -> str:
        if self._in_string:
            return self._in_string_written(character)
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        elif self._depth == 0:
            self._is_scalar = True
        return character

    def _in_string_written(self, character: str) -> str:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_string = False
        return json.dumps(character)[1:-1] if character < " " else character


def stream_value(source: TextSource, part_of: Callable[[str], Part]) -> Steps[None]:
    """Passes the next value on, each piece as part_of makes it."""
    scan, is_done = ValueScan(), False
    while not is_done and (text := (yield from source.available())):
        piece, num_characters, is_done = scan.push(text)
        source.skip(num_characters)
        if piece:
            yield part_of(piece)


def read_value(source: TextSource) -> Steps[str | None]:
    """The text of the next value; None where it does not end, or is none."""
    scan, pieces = ValueScan(), []
    while text := (yield from source.available()):
        piece, num_characters, is_done = scan.push(text)
        source.skip(num_characters)
        pieces.append(piece)
        if is_done:
            return "".join(pieces) if is_json("".join(pieces)) else None
    return None


def read_string(source: TextSource) -> Steps[str | None]:
    """The next value where it is a string, decoded; else None."""
    if (yield from source.peek()) != '"':
        return None
    text = yield from read_value(source)
    return None if text is None else str(json.loads(text))


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
