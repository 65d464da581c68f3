"""How far something is, as a line."""

from __future__ import annotations

from textual.content import Content

from ktdesk.amounts import bytes_text
from ktdesk.tui.markdown.harmless import harmless

EIGHTHS = " ▏▎▍▌▋▊▉"


def progress_bar(share: float, width: int) -> Content:
    """To an eighth of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    part = EIGHTHS[rest] if full < width else ""
    return Content.assemble(("█" * full + part, "$primary"), ("·" * (width - full - len(part)), "dim"))


def bytes_line(label: str, done: int, total: int, width: int, label_width: int) -> Content:
    """A label, a bar, and how much of it is there."""
    share = done / total if total else 0.0
    words = f" {share:4.0%} of {bytes_text(total)}" if total else " …"
    room = max(6, width - label_width - len(words) - 1)
    name = harmless(label)
    name = name if len(name) <= label_width - 1 else f"…{name[-(label_width - 2) :]}"
    return Content.assemble(f"{name:<{label_width}}", progress_bar(share, room), (words, "bold"))
