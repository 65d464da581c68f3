"""Tokens that are found in the text before it is cut and merged: `<|im_start|>`, `<think>`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from ktdesk_engine.tokenizer.vocabulary import TokenType, Vocabulary

Span = tuple[int, int]
"""Positions in a text: first, one past the last."""


class AddedTokens:
    """Finds them: at each position the longest.

    User-defined tokens are found always, control tokens only where the caller asks for special tokens: text of a
    user must not become one.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._user_defined = vocabulary.of_types(TokenType.USER_DEFINED)
        self._control = vocabulary.of_types(TokenType.CONTROL)

    def split(self, text: str, *, parse_special: bool, literal_spans: Sequence[Span]) -> Iterator[str | int]:
        """The parts of text in order: the ids of the tokens found, the ordinary text between them.

        No token is found that touches a literal span.
        """
        pattern = self._all_pattern if parse_special else self._user_defined_pattern
        if pattern is None:
            yield from [text] if text else []
            return
        start = 0
        for begin, end in _between(literal_spans, len(text)):
            for match in pattern.finditer(text, begin, end):
                if match.start() > start:
                    yield text[start : match.start()]
                yield self._id_of(match.group())
                start = match.end()
        if start < len(text):
            yield text[start:]

    def _id_of(self, token: str) -> int:
        user_defined = self._user_defined.get(token)
        return self._control[token] if user_defined is None else user_defined

    @cached_property
    def _user_defined_pattern(self) -> re.Pattern[str] | None:
        return _longest_of(self._user_defined)

    @cached_property
    def _all_pattern(self) -> re.Pattern[str] | None:
        return _longest_of([*self._user_defined, *self._control])


def _between(spans: Iterable[Span], length: int) -> Iterator[Span]:
    """What the spans leave of 0..length."""
    begin = 0
    for start, end in sorted(spans):
        if begin < start:
            yield begin, start
        begin = max(begin, end)
    if begin < length:
        yield begin, length


def _longest_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    words = list(tokens)
    return re.compile(_alternatives(words)) if words else None


def _alternatives(words: list[str], max_depth: int = 12) -> str:
    """A regular expression for the longest of words. What many begin with is looked at once for all."""
    if len(words) <= 3 or max_depth == 0:
        longest_first = sorted(words, key=len, reverse=True)
        return f"(?:{'|'.join(map(re.escape, longest_first))})"
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for word in words:
        rests[word[:1]].append(word[1:])
    ends_here = "?" if rests.pop("", None) else ""
    branches = (re.escape(first) + _alternatives(rest, max_depth - 1) for first, rest in rests.items())
    return f"(?:{'|'.join(branches)}){ends_here}"
