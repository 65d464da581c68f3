"""A block of code that grows at its end: lines are coloured for good once they look the same without those before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from rich.segment import Segment

from ktdesk.tui.markdown.code import code_lines, code_pieces
from ktdesk.tui.markdown.styles import MarkdownStyles
from ktdesk.tui.markdown.wrapping import Piece

OPEN_LINES = 12
"""That stay open at least: what they are may be seen from what comes."""


class GrowingCode:
    """`lines` of a source that is an extension of the last colours its open end alone. A lexer begins there as at the
    beginning of a file, so the end is parted only where it says of the open lines what it said before."""

    def __init__(self, language: str, width: int, styles: MarkdownStyles) -> None:
        self.key = (language, width, styles)
        self._source = ""
        """Of the lines that are kept."""
        self._lines: list[list[Segment]] = []
        self._next_try = 2 * OPEN_LINES
        """So many open lines are tried to be parted."""

    def lines(self, source: str) -> list[list[Segment]]:
        if not source.startswith(self._source):
            self._forget()
        rest = source[len(self._source) :]
        num_lines = rest.count("\n")
        if num_lines >= self._next_try:
            self._part(rest, num_lines)
            rest = source[len(self._source) :]
        return [*self._lines, *self._drawn(self._pieces(rest))]

    def _forget(self) -> None:
        self._source, self._lines, self._next_try = "", [], 2 * OPEN_LINES

    def _part(self, rest: str, num_lines: int) -> None:
        cut = _start_of_line(rest, num_lines - OPEN_LINES)
        before, after = _parted(self._pieces(rest), cut)
        if after != self._pieces(rest[cut:]):
            self._next_try = num_lines + OPEN_LINES
            return
        self._lines += self._drawn(_without_last_break(before))
        self._source += rest[:cut]
        self._next_try = 2 * OPEN_LINES

    def _pieces(self, source: str) -> list[Piece]:
        """Neighbours of one style are one piece."""
        language, _, styles = self.key
        parts = groupby(code_pieces(source, language, styles), itemgetter(1))
        return [("".join(text for text, _ in same), style) for style, same in parts]

    def _drawn(self, pieces: Sequence[Piece]) -> list[list[Segment]]:
        _, width, styles = self.key
        return code_lines(pieces, width, styles.code_block)


def _start_of_line(text: str, number: int) -> int:
    """number: of the line, from 0."""
    position = 0
    for _ in range(number):
        position = text.index("\n", position) + 1
    return position


def _parted(pieces: Sequence[Piece], cut: int) -> tuple[list[Piece], list[Piece]]:
    before: list[Piece] = []
    after: list[Piece] = []
    begin = 0
    for text, style in pieces:
        inside = min(max(cut - begin, 0), len(text))
        if text[:inside]:
            before.append((text[:inside], style))
        if text[inside:]:
            after.append((text[inside:], style))
        begin += len(text)
    return before, after


def _without_last_break(pieces: Sequence[Piece]) -> list[Piece]:
    *rest, (text, style) = pieces
    return [*rest, (text.removesuffix("\n"), style)]
