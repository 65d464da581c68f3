"""Markdown as lines: each construct, growing text, and text that wants to steer the terminal."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from ktdesk.tui.markdown.growing import GrowingMarkdown, plain_text
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.markdown.styles import MarkdownStyles
from ktdesk.tui.markdown.wrapping import wrap

STYLES = MarkdownStyles()
DOCUMENT = """\
# Heading
Some *text* with **bold** and `code`, a [link](https://example.org/x) and a long line that is wrapped at its width.

- item one
  - nested
- item two

3. third

   with a paragraph
> quoted

| Name | Value |
|:--|--:|
| a | 1 |
| 中文 | 22 |

```python
def f(x):
    return "a"  # b
```
---
last
"""


def drawn(text: str, width: int = 40) -> list[str]:
    markdown = GrowingMarkdown()
    markdown.set_text(text)
    return [plain_text(line).rstrip() for line in markdown.lines(width, STYLES)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# A\nb", ["A", "", "b"]),
        ("a\nb", ["a", "b"]),
        ("- a\n- b", ["• a", "• b"]),
        ("- a\n  - b\n    - c", ["• a", "  ◦ b", "    ▪ c"]),
        ("9. a\n10. b", [" 9. a", "10. b"]),
        ("- a\n\n- b", ["• a", "", "• b"]),
        ("> a\n> b", ["▌ a", "▌ b"]),
        ("> - a", ["▌ • a"]),
        ("---", ["─" * 40]),
        ("```\na\n  b\n```", [" " * 35 + "copy", " a", "   b"]),
        ("```py\na", [" py" + " " * 32 + "copy", " a"]),
        ("[a](http://b)", ["a (http://b)"]),
        ("<http://b>", ["http://b"]),
        ("![a](b.png)", ["[a: b.png]"]),
        ("<div>x</div>", ["<div>x</div>"]),
        ("a<br>b", ["a<br>b"]),
        ("-", ["•"]),
        ("~~a~~ **b", ["a **b"]),
        ("", []),
    ],
)
def test_each_construct_has_its_lines(text: str, lines: list[str]) -> None:
    assert drawn(text) == lines


def test_a_table_fits_its_width_and_aligns_wide_letters() -> None:
    text = "| Name | Number |\n|:--|--:|\n| 中文 | 22 |\n| some longer words here | 1 |"
    assert drawn(text, 24) == [
        "Name            │ Number",
        "────────────────┼───────",
        "中文            │     22",
        "some longer     │      1",
        "words here      │",
    ]


@pytest.mark.parametrize("step", [1, 3, 7, 50])
@pytest.mark.parametrize("width", [8, 40, 100])
def test_text_that_grows_is_drawn_as_if_it_had_come_at_once(step: int, width: int) -> None:
    growing = GrowingMarkdown()
    for end in range(0, len(DOCUMENT), step):
        growing.set_text(DOCUMENT[:end])
        growing.lines(width, STYLES)
    growing.set_text(DOCUMENT)
    whole = GrowingMarkdown()
    whole.set_text(DOCUMENT)
    assert growing.lines(width, STYLES) == whole.lines(width, STYLES)
    assert growing.codes == whole.codes == ['def f(x):\n    return "a"  # b']


def test_only_the_last_block_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from ktdesk.tui.markdown import growing as module

    markdown = GrowingMarkdown()
    markdown.set_text("a\n\n" * 500)
    markdown.lines(40, STYLES)
    parsed: list[int] = []
    parse = module.parser().parse
    monkeypatch.setattr(module.parser(), "parse", lambda text: parsed.append(len(text)) or parse(text))
    markdown.set_text("a\n\n" * 500 + "b")
    markdown.lines(40, STYLES)
    assert parsed == [4]


def test_a_text_that_is_no_continuation_is_drawn_anew() -> None:
    markdown = GrowingMarkdown()
    for text in ("first\n\nsecond", "other"):
        markdown.set_text(text)
        lines = markdown.lines(40, STYLES)
    assert [plain_text(line) for line in lines] == ["other"]


def test_what_would_steer_a_terminal_is_drawn() -> None:
    for text in ("\x1b[31mred", "\x1b]52;c;aGk=\a", "a\x9bb", "\x00", "\u202egnp.exe", "\ud800", "\x7f", "\r"):
        shown = "".join(drawn(f"{text} and `{text}`\n\n```\n{text}\n```", 60))
        assert not {letter for letter in shown if not letter.isprintable()}, repr(shown)


def test_a_letter_that_becomes_a_picture_is_a_cell_wider() -> None:
    for line in wrap([("a\u2601\ufe0fb" * 4, Style())], 2):
        assert sum(cell_len(segment.text) for segment in line) <= 2


@given(st.text(max_size=200), st.integers(1, 30))
@example("00\xa0", 2)
def test_any_text_is_cut_into_lines_that_fit(text: str, width: int) -> None:
    safe = harmless(text)
    for line in wrap([(safe[: len(safe) // 2], Style()), (safe[len(safe) // 2 :], Style(bold=True))], width):
        assert sum(cell_len(segment.text) for segment in line) <= max(width, 2)


@given(st.text(st.characters(codec="utf-8"), max_size=100))
def test_nothing_but_space_is_lost_in_wrapping(text: str) -> None:
    lines = wrap([(harmless(text), Style())], 7)
    kept = "".join(segment.text for line in lines for segment in line)
    assert kept.split() == [] or "".join(kept.split()) == "".join(harmless(text).split())


@given(st.text(alphabet="ab *_`#>-|[]()\n\t1.~<&中\\!", max_size=120), st.integers(1, 60))
def test_no_markdown_is_too_odd_to_be_drawn_while_it_grows(text: str, width: int) -> None:
    growing = GrowingMarkdown()
    for end in range(0, len(text) + 1, 11):
        growing.set_text(text[:end])
        growing.lines(width, STYLES)


def test_code_has_colours_where_its_language_is_known() -> None:
    markdown = GrowingMarkdown()
    markdown.set_text("```python\nreturn 1\n```\n\n```nonsense\nreturn 1\n```")
    styles = MarkdownStyles(keyword=Style(color="red"))
    coloured = [any(segment.style == styles.keyword for segment in line) for line in markdown.lines(40, styles)]
    assert coloured == [False, True, False, False, False]


def test_a_table_with_more_columns_than_there_is_room_for_has_a_line_for_each_cell() -> None:
    head = " | ".join(f"column {number}" for number in range(12))
    values = " | ".join(f"value {number}" for number in range(12))
    text = f"| {head} |\n|{'---|' * 12}\n| {values} |\n| {values} |"
    lines = drawn(text, 40)
    assert lines[:2] == ["column 0: value 0", "column 1: value 1"]
    assert lines[12] == "─" * 40
    assert len(lines) == 25


@pytest.mark.parametrize("mark", ["- ", "> "], ids=["lists", "quotations"])
def test_what_is_nested_deeply_stays_within_the_width_and_loses_no_word(mark: str) -> None:
    text = "\n".join(("  " * level if mark == "- " else ">" * level) + f"{mark}level{level}" for level in range(30))
    lines = drawn(text, 40)
    assert max(cell_len(line) for line in lines) <= 40
    assert all(any(f"level{level}" in line for line in lines) for level in range(30))


def test_what_is_nested_deeper_than_is_parsed_is_shown_as_it_is_written() -> None:
    shown = "".join(drawn(">" * 500 + " deep", 40))
    assert shown.endswith(" deep")
