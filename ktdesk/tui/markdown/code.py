"""Code in colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rich.segment import Segment
from rich.style import Style

from ktdesk.tui.markdown.styles import MarkdownStyles
from ktdesk.tui.markdown.wrapping import Piece, cells_of, wrap

MAX_COLOURED_LETTERS = 60_000
"""More is drawn plain: colours take about a microsecond a letter, at each picture."""


def code_pieces(source: str, language: str, styles: MarkdownStyles) -> list[Piece]:
    lexer = _lexer(language) if len(source) <= MAX_COLOURED_LETTERS else None
    if lexer is None:
        return [(source, styles.code_block)]
    colours = _colours(styles)
    pieces: list[Piece] = []
    for kind, text in lexer.get_tokens(source):
        style = styles.code_block
        for part in reversed(kind.split()):
            if part in colours:
                style = colours[part]
                break
        pieces.append((text, style))
    return pieces


def code_lines(pieces: Sequence[Piece], width: int, background: Style) -> list[list[Segment]]:
    """Each as wide as the block, one cell of it left free on each side."""
    edge = Segment(" ", background)
    lines = []
    for segments in wrap(pieces, max(1, width - 2)):
        room = width - 1 - cells_of(segments)
        lines.append([edge, *segments, Segment(" " * max(0, room), background)])
    return lines


@lru_cache(maxsize=32)
def _lexer(language: str) -> Any:
    """None where nobody knows the language."""
    name = language.strip().split()[0].lower() if language.strip() else ""
    if not name:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=4)
def _colours(styles: MarkdownStyles) -> dict[Any, Style]:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    block = styles.code_block
    return {
        Comment: block + styles.comment,
        Keyword: block + styles.keyword,
        Operator.Word: block + styles.keyword,
        String: block + styles.string,
        Number: block + styles.number,
        Name.Function: block + styles.name,
        Name.Class: block + styles.name,
        Name.Decorator: block + styles.name,
        Name.Tag: block + styles.keyword,
        Name.Attribute: block + styles.name,
    }
