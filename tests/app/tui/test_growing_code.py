"""Code that comes bit by bit: coloured as the whole is, and no more of it than needed."""

from __future__ import annotations

import pytest
from rich.style import Style

from ktdesk.tui.markdown import growing_code
from ktdesk.tui.markdown.growing import GrowingMarkdown
from ktdesk.tui.markdown.growing_code import OPEN_LINES, GrowingCode
from ktdesk.tui.markdown.styles import MarkdownStyles

STYLES = MarkdownStyles(
    keyword=Style(color="red"), string=Style(color="green"), number=Style(color="blue"), name=Style(color="cyan")
)
FUNCTION = '''def share_{n}(read_bytes: float, seconds: float = {n}.5) -> float:
    """Of the ceiling.

    It is for the {n}th machine, if any.
    """
    for step in range({n}, 10):  # no end
        read_bytes += step
    return read_bytes / seconds

'''
SOURCE = "".join(FUNCTION.format(n=n) for n in range(30))
LONG_STRING = 'TEXT = """\n' + "if this were code, for would be a word\n" * 80 + '"""\nfor x in y:\n    pass\n' * 20
Drawn = list[list[tuple[str, object]]]


def letters(lines: list[list[object]]) -> Drawn:
    """Each with its style, however they are cut into segments."""
    return [[(letter, segment.style) for segment in line for letter in segment.text] for line in lines]  # type: ignore[attr-defined]


@pytest.mark.parametrize("source", [SOURCE, LONG_STRING], ids=["functions", "strings"])
def test_code_that_grows_is_coloured_at_each_step_as_the_whole_is(source: str) -> None:
    growing = GrowingCode("python", 60, STYLES)
    for end in range(50, len(source), 331):
        part = source[:end].rstrip()
        whole = GrowingMarkdown()
        whole.set_text(f"```python\n{part}")
        assert letters(growing.lines(part)) == letters(whole.lines(60, STYLES)[1:])


def test_only_the_open_end_is_coloured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured: list[int] = []
    pieces = growing_code.code_pieces

    def counted(source: str, language: str, styles: MarkdownStyles) -> list[tuple[str, Style]]:
        coloured.append(source.count("\n") + 1)
        return pieces(source, language, styles)

    monkeypatch.setattr(growing_code, "code_pieces", counted)
    growing = GrowingCode("python", 60, STYLES)
    lines = SOURCE.split("\n")
    for number in range(1, len(lines)):
        growing.lines("\n".join(lines[:number]))
    assert max(coloured) <= 4 * OPEN_LINES
    assert sum(coloured) < 4 * OPEN_LINES * len(lines)


def test_lines_that_are_kept_stay_the_same_objects() -> None:
    growing = GrowingCode("python", 60, STYLES)
    half, whole = SOURCE[: len(SOURCE) // 2], SOURCE
    before = growing.lines(half)
    after = growing.lines(whole)
    assert before[0] is after[0]


def test_another_source_is_drawn_anew() -> None:
    growing = GrowingCode("python", 60, STYLES)
    growing.lines(SOURCE)
    assert letters(growing.lines("x = 1")) == letters(GrowingCode("python", 60, STYLES).lines("x = 1"))


def test_what_came_last_is_drawn_anew_once_nothing_more_comes() -> None:
    text = f"So:\n\n1. first\n\n   ```python\n   {SOURCE[:900]}\n"
    growing, whole = GrowingMarkdown(), GrowingMarkdown()
    for end in range(0, len(text), 97):
        growing.set_text(text[:end], is_open=True)
        growing.lines(60, STYLES)
    growing.set_text(text, is_open=True)
    tail = growing.lines(60, STYLES)[-1]
    growing.set_text(text)
    whole.set_text(text)
    assert growing.lines(60, STYLES)[-1] is not tail
    assert letters(growing.lines(60, STYLES)) == letters(whole.lines(60, STYLES))
