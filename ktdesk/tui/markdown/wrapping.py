"""Styled text cut into lines of a width in cells: wide letters take two, and may be parted anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

_WIDE = "\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
_AS_PICTURE = "\ufe0f"
"""Makes some letters before it a picture, which is a cell wider."""
_WORD = re.compile(f"[{_WIDE}][ ]*|[^\\s{_WIDE}]+[ ]*|\\s+")
Piece = tuple[str, Style]


def wrap(pieces: Sequence[Piece], width: int) -> list[list[Segment]]:
    """Lines of at most width cells; a line break in the text is one. Spaces at the end of a line are dropped."""
    text = "".join(piece for piece, _ in pieces)
    spans = list(_line_spans(text, max(1, width)))
    return list(_styled_lines(pieces, spans))


def _line_spans(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends in the text."""
    start = 0
    for line in text.split("\n"):
        if cell_len(line) <= width:
            yield start, start + len(line)
        else:
            for begin, end in _wrapped(line, width):
                yield start + begin, start + end
        start += len(line) + 1


def _wrapped(line: str, width: int) -> Iterator[tuple[int, int]]:
    begin = end = used = 0
    for match in _WORD.finditer(line):
        word = match[0]
        cells, bare = cell_len(word), cell_len(word.rstrip(" "))
        if used + bare > width and used:
            yield begin, _trimmed(line, begin, end)
            begin, used = match.start(), 0
        if bare > width:
            *whole, (begin, used) = _chopped(word, match.start(), width)
            yield from whole
        else:
            used += cells
        end = match.end()
    yield begin, _trimmed(line, begin, end)


def _chopped(word: str, offset: int, width: int) -> list[tuple[int, int]]:
    """A word that is longer than a line: spans of whole lines, then where the rest begins and its cells."""
    spans, begin, used = [], 0, 0
    for index, letter in enumerate(word):
        cells = _cells_more(word[max(0, index - 1) : index], letter)
        if used + cells > width and used:
            spans.append((offset + begin, offset + index))
            begin, used = index, 0
        used += cells
    return [*spans, (offset + begin, used)]


def _cells_more(before: str, letter: str) -> int:
    """What a letter takes behind another."""
    return cell_len(before + letter) - cell_len(before) if letter == _AS_PICTURE else cell_len(letter)


def _trimmed(line: str, begin: int, end: int) -> int:
    return begin + len(line[begin:end].rstrip(" "))


def _styled_lines(pieces: Sequence[Piece], spans: Sequence[tuple[int, int]]) -> Iterator[list[Segment]]:
    index = offset = 0  # of the piece that holds the line's beginning, and of its text

    for begin, end in spans:
        segments: list[Segment] = []
        while index < len(pieces) and offset + len(pieces[index][0]) <= begin:
            offset += len(pieces[index][0])
            index += 1
        here, start = index, offset
        while here < len(pieces) and start < end:
            text, style = pieces[here]
            part = text[max(0, begin - start) : end - start]
            if part:
                segments.append(Segment(part, style))
            start += len(text)
            here += 1
        yield segments


def cells_of(segments: Sequence[Segment]) -> int:
    return sum(cell_len(segment.text) for segment in segments)
