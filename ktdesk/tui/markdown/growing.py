"""Markdown that grows at its end: what stands before its last block is drawn once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from markdown_it import MarkdownIt
from rich.segment import Segment

from ktdesk.tui.markdown.blocks import BlockDrawer, Drawn, Line, siblings
from ktdesk.tui.markdown.growing_code import GrowingCode
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.markdown.styles import MarkdownStyles


@lru_cache(maxsize=1)
def parser() -> MarkdownIt:
    """Without addresses that are not marked as links: models write them, and what is a link must be seen as one."""
    return MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])


class GrowingMarkdown:
    """lines(width) of a text that is set or appended to. A text that is not an extension is drawn anew."""

    def __init__(self, code_click: Callable[[int], str] = lambda number: f"copy_code({number})") -> None:
        self._code_click = code_click
        self._given = ""
        """The text as it was given: what it grew by is made harmless, and no more."""
        self._text = ""
        self._drawn_for: tuple[int, MarkdownStyles] | None = None
        self._stable = Drawn()
        """Blocks that are drawn for good."""
        self._stable_end = 0
        """Where in the text they end."""
        self._tail: Drawn | None = None
        """The last block; None where it must be drawn."""
        self._growing: dict[int, GrowingCode] = {}
        """Blocks of code in it."""
        self._is_open = False
        """More may come."""

    @property
    def text(self) -> str:
        return self._text

    def set_text(self, text: str, *, is_open: bool = False) -> None:
        """Of the whole. Appending is cheap. is_open: more may come; what came last is drawn anew at the end."""
        if self._is_open and not is_open:
            self._growing, self._tail = {}, None
        self._is_open = is_open
        if text == self._given:
            return
        if text.startswith(self._given):
            self._text += harmless(text[len(self._given) :])
        else:
            self._forget()
            self._text = harmless(text)
        self._given = text
        self._tail = None

    def lines(self, width: int, styles: MarkdownStyles) -> list[Line]:
        if self._drawn_for != (width, styles):
            self._forget()
            self._drawn_for = (width, styles)
        if self._tail is None:
            self._draw(width, styles)
        assert self._tail is not None
        between: list[Line] = [[]] if self._stable.lines and self._tail.lines else []
        return [*self._stable.lines, *between, *self._tail.lines]

    @property
    def codes(self) -> list[str]:
        """Sources of all blocks of code that were drawn."""
        return [*self._stable.codes, *(self._tail.codes if self._tail is not None else ())]

    def _forget(self) -> None:
        self._stable, self._stable_end, self._tail, self._growing = Drawn(), 0, None, {}

    def _draw(self, width: int, styles: MarkdownStyles) -> None:
        rest = self._text[self._stable_end :]
        blocks = siblings(parser().parse(rest))
        starts = _line_starts(rest)
        for number, block in enumerate(blocks):
            is_last = number == len(blocks) - 1
            growing = self._growing if is_last and self._is_open else {}
            drawer = BlockDrawer(width, styles, self._code_click, len(self._stable.codes), growing)
            drawer.draw(block)
            if is_last:
                if not drawer.drawn.lines:  # nested deeper than is parsed: as it is written
                    drawer.write(rest.rstrip())
                self._tail = drawer.drawn
                line = block[0].map[0] if block[0].map else 0
                self._stable_end += starts[line]
            else:
                self._stable.lines += ([[]] if self._stable.lines else []) + drawer.drawn.lines
                self._stable.codes += drawer.drawn.codes
        if not blocks:
            self._tail = Drawn()


def plain_text(line: Line) -> str:
    return "".join(segment.text for segment in line if isinstance(segment, Segment))


def _line_starts(text: str) -> list[int]:
    starts = [0]
    position = text.find("\n")
    while position >= 0:
        starts.append(position + 1)
        position = text.find("\n", position + 1)
    return starts
