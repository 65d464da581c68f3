"""Keeps control tokens that people spell apart from those that a chat template writes.

Before rendering, each control token in the messages is replaced by digits that no one can guess. After it,
the digits are replaced back and their places noted, so that the tokenizer reads them as plain text. Digits:
because templates trim, change case, and escape as JSON, and digits survive all three.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Span = tuple[int, int]
KEY_DIGITS = 30
INDEX_DIGITS = 6


class ControlTokens:
    """Finds control tokens in text, in time linear in its length."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = frozenset(token for token in tokens if token)
        self._lengths = sorted({len(token) for token in self._tokens}, reverse=True)
        openers = {token[:2] for token in self._tokens}
        self._beginnings = {token[:n] for token in self._tokens for n in range(1, len(token))}
        self._harmless = {opener for opener in openers if re.fullmatch(r"<[/\w]", opener)}
        self._opener = re.compile("|".join(map(re.escape, sorted(openers, key=len, reverse=True))) or r"(?!)")

    def find(self, text: str) -> Iterator[Span]:
        """Places that must stay text: whole tokens, and beginnings such as `<|` of tokens.

        The beginnings, because a template may join two texts, or cut something out of one, and so complete a
        token. Beginnings that markup shares (`</`) only at the end of the text: templates seek `</think>`.
        """
        position = 0
        while match := self._opener.search(text, position):
            start = match.start()
            end = self._token_end(text, start)
            if end is None and match.group() not in self._harmless:
                end = match.end()
            if end is not None:
                yield start, end
            position = end or start + 1
        for start in range(max(position, len(text) - max(self._lengths, default=0)), len(text)):
            if text[start:] in self._beginnings:
                yield start, len(text)
                return

    def _token_end(self, text: str, start: int) -> int | None:
        """End of the longest token that starts here."""
        for length in self._lengths:
            if text[start : start + length] in self._tokens:
                return start + length
        return None


class Revealed(NamedTuple):
    text: str
    spans: tuple[Span, ...]
    """Where the text holds what was hidden. Ascending, not overlapping."""


class Disguise:
    """Hides the control tokens of one conversation, and reveals them in the text rendered from it."""

    def __init__(self, tokens: ControlTokens) -> None:
        self._tokens = tokens
        self._key = "".join(secrets.choice("0123456789") for _ in range(KEY_DIGITS))
        self._hidden: dict[str, int] = {}

    def hide(self, value: Any) -> Any:
        """A copy of a JSON value with the control tokens in its strings, keys included, replaced."""
        if isinstance(value, str):
            return self._hide_text(value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide(item) for item in value]
        return value

    def reveal(self, text: str) -> Revealed:
        literals = list(self._hidden)
        pieces, spans, position, length = [], [], 0, 0
        for match in re.finditer(rf"{self._key}([0-9]{{{INDEX_DIGITS}}})", text):
            before, literal = text[position : match.start()], literals[int(match[1])]
            start = length + len(before)
            length = start + len(literal)
            pieces += [before, literal]
            spans.append((start, length))
            position = match.end()
        return Revealed("".join([*pieces, text[position:]]), tuple(spans))

    def _hide_text(self, text: str) -> str:
        pieces, position = [], 0
        for start, end in self._tokens.find(text):
            index = self._hidden.setdefault(text[start:end], len(self._hidden))
            pieces += [text[position:start], f"{self._key}{index:0{INDEX_DIGITS}}"]
            position = end
        return "".join([*pieces, text[position:]]) if pieces else text
