"""What stands inside of a line of Markdown, as pieces of styled text."""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it.token import Token
from rich.style import Style

from ktdesk.tui.markdown.styles import MarkdownStyles
from ktdesk.tui.markdown.wrapping import Piece

OPENABLE = ("http://", "https://", "mailto:")


def inline_pieces(tokens: Sequence[Token], styles: MarkdownStyles, base: Style) -> list[Piece]:
    """Links show where they lead, unless that is their text."""
    marks = {"strong": styles.strong, "em": styles.emphasis, "s": styles.struck}
    pieces: list[Piece] = []
    stack = [base]
    links: list[tuple[str, int]] = []
    for token in tokens:
        kind = token.type.rpartition("_")[0]
        if kind in marks and token.nesting == 1:
            stack.append(stack[-1] + marks[kind])
        elif kind in marks and len(stack) > 1:
            stack.pop()
        elif token.type == "link_open":
            links.append((str(token.attrs.get("href", "")), len(pieces)))
            stack.append(stack[-1] + styles.link + _click(links[-1][0]))
        elif token.type == "link_close" and links:
            stack.pop()
            address, begin = links.pop()
            if "".join(text for text, _ in pieces[begin:]) != address:
                pieces.append((f" ({address})", stack[-1] + styles.faint))
        elif token.type == "code_inline":
            pieces.append((token.content, stack[-1] + styles.code))
        elif token.type in ("softbreak", "hardbreak"):
            pieces.append(("\n", stack[-1]))
        elif token.type == "image":
            pieces.append((f"[{token.content or 'image'}: {token.attrs.get('src', '')}]", stack[-1] + styles.faint))
        elif token.content:
            pieces.append((token.content, stack[-1]))
    return pieces


def _click(address: str) -> Style:
    return Style.from_meta({"@click": f"app.open_address({address!r})"}) if address.startswith(OPENABLE) else Style()
