"""The text of an answer as a parser reads it: what is not there yet is waited for.

Each reading method is a generator of `Steps`. It decides nothing that more text could change, so it makes no
difference how the text is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ktdesk_engine.chat.parsing.parts import Steps

MAX_HEADER = 256
"""Characters that the name of a tool or of a parameter may have."""


class Found(NamedTuple):
    text: str
    """What stands before the tag. Where it is not empty, tag is not looked at yet."""
    tag: str
    """Empty where none came: more text follows, or with no text the answer ends."""


class TextSource:
    """Text that grows at its end and is read from its beginning."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._mark: int | None = None
        self._is_ended = False
        self._is_cut = False
        self._ran_out = False

    def push(self, text: str) -> None:
        keep = self._at if self._mark is None else self._mark
        self._text = self._text[keep:] + text
        self._at -= keep
        self._mark = None if self._mark is None else 0

    def end(self, *, is_cut: bool) -> None:
        """is_cut: the answer did not end by itself, so half a tag at its end is no text."""
        self._is_ended = True
        self._is_cut = is_cut

    @property
    def is_broken_off(self) -> bool:
        """Whether an answer that was cut ended in the middle of what was tried since `mark`."""
        return self._is_cut and self._ran_out

    def mark(self) -> None:
        """`rewind` will come back here."""
        self._mark = self._at
        self._ran_out = False

    def forget_mark(self) -> None:
        self._mark = None

    def rewind(self) -> None:
        """Back to the mark; or to the end, where an answer that was cut ended in the middle of what was tried."""
        assert self._mark is not None
        self._at, self._mark = (len(self._text) if self.is_broken_off else self._mark), None

    def _wait(self) -> Steps[bool]:
        """False where no more text will come. What would have had to go on is dropped where the answer was cut."""
        if self._is_ended:
            self._ran_out = True
            if self._is_cut:
                self._at = len(self._text)
            return False
        yield None
        return True

    def peek(self) -> Steps[str]:
        """The next character; empty at the end."""
        while self._at == len(self._text):
            if not (yield from self._wait()):
                return ""
        return self._text[self._at]

    def available(self) -> Steps[str]:
        """All the text that is there, at least a character; empty at the end. It is not read yet: see `skip`."""
        yield from self.peek()
        return self._text[self._at :]

    def skip(self, num_characters: int) -> None:
        self._at += num_characters

    def spaces(self) -> Steps[None]:
        """Reads over white space."""
        while (character := (yield from self.peek())) and character.isspace():
            self._at += 1

    def literal(self, expected: str) -> Steps[bool]:
        """Reads it, if it is what comes next."""
        while True:
            if self._text.startswith(expected, self._at):
                self._at += len(expected)
                return True
            if not expected.startswith(self._text[self._at :]) or not (yield from self._wait()):
                return False

    def header(self, end: str) -> Steps[str | None]:
        """Reads up to end and over it. None where a line ends before, or where it is too long for a name."""
        while True:
            rest = self._text[self._at : self._at + MAX_HEADER + len(end)]
            text, found, _ = rest.partition(end)
            if "\n" in text.rstrip("\n") or (len(text) >= MAX_HEADER and not found):
                return None
            if found:
                self._at += len(text) + len(end)
                return text.strip()
            if not (yield from self._wait()):
                return None

    def until(self, tags: Sequence[str]) -> Steps[Found]:
        """Reads text that is surely before the next of tags, as much as there is; or, if it comes next, the tag."""
        while True:
            places = [(place, tag) for tag in tags if (place := self._text.find(tag, self._at)) >= 0]
            place, tag = min(places, default=(len(self._text) - self._held_length(tags), ""))
            if place > self._at:
                text, self._at = self._text[self._at : place], place
                return Found(text, "")
            if tag:
                self._at += len(tag)
                return Found("", tag)
            if not (yield from self._wait()):
                text, self._at = self._text[self._at :], len(self._text)
                return Found(text, "")

    def _held_length(self, tags: Sequence[str]) -> int:
        """Length of the longest end of the text that begins a tag."""
        text = self._text[self._at :]
        lengths = (
            length for tag in tags for length in range(1, min(len(tag), len(text) + 1)) if text.endswith(tag[:length])
        )
        return max(lengths, default=0)
