"""How the parts of a message look: classes that a theme's colors reach, and their styles for drawing."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget

from ktdesk.tui.chat.entry import EntryStyles
from ktdesk.tui.markdown.styles import MarkdownStyles

PARTS = (
    *("user", "answer", "faint", "error", "chosen", "heading", "link", "code", "code-block"),
    *("keyword", "string", "number", "name", "comment"),
)
COMPONENTS = {f"transcript--{part}" for part in PARTS}
COMPONENT_CSS = """
.transcript--user { color: $primary; text-style: bold; }
.transcript--answer { color: $success; text-style: bold; }
.transcript--faint { color: $foreground; text-style: dim; }
.transcript--error { color: $error; }
.transcript--link { color: $primary; text-style: underline; }
.transcript--heading { color: $accent; text-style: bold; }
.transcript--code { color: $accent; }
.transcript--code-block { background: $panel; }
.transcript--keyword { color: $primary; }
.transcript--string { color: $success; }
.transcript--number { color: $accent; }
.transcript--name { color: $warning; }
.transcript--comment { color: $foreground; text-style: dim italic; }
.transcript--chosen { color: $primary; }
"""


def entry_styles(widget: Widget) -> EntryStyles:
    """As the theme has them now."""

    def style(name: str) -> Style:
        return widget.get_component_rich_style(f"transcript--{name}", partial=True)

    faint = style("faint")
    drawn = MarkdownStyles(
        heading=style("heading"),
        code=style("code"),
        code_block=style("code-block"),
        link=style("link"),
        faint=faint,
        keyword=style("keyword"),
        string=style("string"),
        number=style("number"),
        name=style("name"),
        comment=style("comment"),
    )
    thought = MarkdownStyles(text=faint, heading=faint, code=faint, code_block=faint, link=faint, faint=faint)
    return EntryStyles(
        drawn,
        thought,
        style("user"),
        style("answer"),
        faint,
        style("error"),
        style("link"),
        style("chosen"),
        widget.rich_style,
    )
