"""The styles that Markdown is drawn in."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style

PLAIN = Style()
BOLD = Style(bold=True)
ITALIC = Style(italic=True)
STRUCK = Style(strike=True)
UNDERLINED = Style(underline=True)
DIM = Style(dim=True)


@dataclass(frozen=True)
class MarkdownStyles:
    text: Style = PLAIN
    strong: Style = BOLD
    emphasis: Style = ITALIC
    struck: Style = STRUCK
    heading: Style = BOLD
    code: Style = BOLD
    """Inline."""
    code_block: Style = PLAIN
    link: Style = UNDERLINED
    faint: Style = DIM
    """Bullets, frames, addresses."""
    keyword: Style = BOLD
    string: Style = PLAIN
    number: Style = PLAIN
    name: Style = PLAIN
    comment: Style = DIM


PLAIN_STYLES = MarkdownStyles()
