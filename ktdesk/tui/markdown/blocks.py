"""Blocks of Markdown as lines: headings, paragraphs, lists, quotations, code, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token
from rich.segment import Segment
from rich.style import Style

from ktdesk.tui.markdown.growing_code import GrowingCode
from ktdesk.tui.markdown.inline import inline_pieces
from ktdesk.tui.markdown.styles import ITALIC, PLAIN, UNDERLINED, MarkdownStyles
from ktdesk.tui.markdown.tables import Cell, table_lines
from ktdesk.tui.markdown.wrapping import Piece, wrap

Line = list[Segment]
BULLETS = "•◦▪"
COPY = " copy "
MIN_WIDTH, NESTED_WIDTH = 8, 16
"""At least; what is nested has more, at the cost of what it is nested in."""


@dataclass
class Drawn:
    lines: list[Line] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    """The sources of the blocks of code among them."""


class BlockDrawer:
    """Draws blocks of a width. code_click names the action of the word that copies a block of code, given its
    number."""

    def __init__(
        self,
        width: int,
        styles: MarkdownStyles,
        code_click: Callable[[int], str],
        num_codes: int,
        growing: dict[int, GrowingCode] | None = None,
    ) -> None:
        """growing: blocks of code of before by their number, that these may be extensions of."""
        self._styles = styles
        self._width = max(MIN_WIDTH, width)
        self._code_click = code_click
        self._num_codes = num_codes
        self._growing = {} if growing is None else growing
        self.drawn = Drawn()

    def draw(self, tokens: Sequence[Token]) -> None:
        self._blocks(tokens, self._width, [], self._styles.text)

    def write(self, text: str) -> None:
        """As it is."""
        self._wrapped([(text, self._styles.text)], self._width, [])

    def _blocks(self, tokens: Sequence[Token], width: int, prefix: Line, base: Style, *, tight: bool = False) -> None:
        """Blocks that stand beneath each other, each line behind a prefix."""
        is_first = True
        for block in siblings(tokens):
            if not is_first and not tight:
                self._put([], prefix)
            is_first = False
            self._block(block, width, prefix, base)

    def _block(self, block: Sequence[Token], width: int, prefix: Line, base: Style) -> None:
        kind = block[0].type
        if kind in ("paragraph_open", "heading_open"):
            self._text(block, width, prefix, base)
        elif kind in ("fence", "code_block"):
            self._code(block[0], width, prefix)
        elif kind in ("bullet_list_open", "ordered_list_open"):
            self._list(block, width, prefix, base)
        elif kind == "blockquote_open":
            bar, room = _deeper(prefix, Segment("▌ ", self._styles.faint), width)
            self._blocks(block[1:-1], room, bar, base + self._styles.emphasis)
        elif kind == "table_open":
            self._table(block, width, prefix, base)
        elif kind == "hr":
            self._put([Segment("─" * width, self._styles.faint)], prefix)
        else:
            self._wrapped([(block[0].content.rstrip("\n"), base + self._styles.faint)], width, prefix)

    def _text(self, block: Sequence[Token], width: int, prefix: Line, base: Style) -> None:
        style = base
        if block[0].type == "heading_open":
            level = int(block[0].tag[1])
            style = base + self._styles.heading + (UNDERLINED if level == 1 else PLAIN)
            style += ITALIC if level > 3 else PLAIN
        self._wrapped(inline_pieces(block[1].children or (), self._styles, style), width, prefix)

    def _wrapped(self, pieces: Sequence[Piece], width: int, prefix: Line) -> None:
        for line in wrap(pieces, width):
            self._put(line, prefix)

    def _code(self, token: Token, width: int, prefix: Line) -> None:
        source = token.content.rstrip("\n")
        number = self._num_codes + len(self.drawn.codes)
        self.drawn.codes.append(source)
        language = token.info.strip().split()[0] if token.info.strip() else ""
        background = self._styles.code_block
        head = f" {language}"[: max(0, width - len(COPY))]
        click = Style.from_meta({"@click": self._code_click(number)})
        rest = " " * max(0, width - len(head) - len(COPY))
        faint = background + self._styles.faint
        self._put([Segment(head + rest, faint), Segment(COPY, background + self._styles.link + click)], prefix)
        for line in self._growing_code(number, language, width).lines(source):
            self._put(line, prefix)

    def _growing_code(self, number: int, language: str, width: int) -> GrowingCode:
        key = (language, width, self._styles)
        known = self._growing.get(number)
        if known is None or known.key != key:
            known = self._growing[number] = GrowingCode(*key)
        return known

    def _list(self, block: Sequence[Token], width: int, prefix: Line, base: Style) -> None:
        items = siblings(block[1:-1])
        number = int(block[0].attrs.get("start", 1))
        is_ordered = block[0].type == "ordered_list_open"
        depth = sum(segment.text.isspace() for segment in prefix)
        marks = [f"{number + i}. " if is_ordered else f"{BULLETS[depth % len(BULLETS)]} " for i in range(len(items))]
        indent = max(map(len, marks), default=2)
        for mark, item in zip(marks, items, strict=True):
            tight = _is_tight(item)
            if self.drawn.lines and not tight and item is not items[0]:
                self._put([], prefix)
            first = len(self.drawn.lines)
            deeper, room = _deeper(prefix, Segment(" " * indent), width)
            self._blocks(item[1:-1], room, deeper, base, tight=tight)
            if len(self.drawn.lines) == first:
                self._put([], deeper)
            self.drawn.lines[first][len(deeper) - 1] = Segment(mark.rjust(indent), self._styles.faint)

    def _table(self, block: Sequence[Token], width: int, prefix: Line, base: Style) -> None:
        rows: list[list[Cell]] = []
        aligns: list[str] = []
        for index, token in enumerate(block):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                is_head = token.type == "th_open"
                if is_head:
                    aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2] or "left")
                style = base + self._styles.strong if is_head else base
                rows[-1].append(inline_pieces(block[index + 1].children or (), self._styles, style))
        for line in table_lines(rows, aligns, width, self._styles):
            self._put(line, prefix)

    def _put(self, line: Line, prefix: Line) -> None:
        self.drawn.lines.append([*prefix, *line] if prefix else line)


def _deeper(prefix: Line, more: Segment, width: int) -> tuple[Line, int]:
    """The prefix of what is nested, and its width: where that has no room, what stands furthest left goes."""
    room = width - more.cell_length
    while room < NESTED_WIDTH and prefix:
        room += prefix[0].cell_length
        prefix = prefix[1:]
    return [*prefix, more], max(MIN_WIDTH, room)


def _is_tight(item: Sequence[Token]) -> bool:
    """Whether nothing in the item stands apart from the rest by an empty line."""
    level = item[0].level + 1
    return all(token.hidden for token in item if token.type == "paragraph_open" and token.level == level)


def siblings(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Tokens of one level, cut into those of each block."""
    blocks: list[Sequence[Token]] = []
    start = 0
    level = tokens[0].level if tokens else 0
    for index, token in enumerate(tokens):
        if token.level == level and token.nesting <= 0:
            blocks.append(tokens[start : index + 1])
            start = index + 1
    return blocks
