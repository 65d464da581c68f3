"""Text for the terminal's clipboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App

MAX_COPIED_LETTERS = 70_000
"""Terminals drop longer OSC 52 sequences."""
FILE = "copied.txt"


def copy(app: App[object], text: str, folder: Path) -> str:
    """By OSC 52, which not every terminal takes: so it lies in a file, too. Says so."""
    is_long = len(text) > MAX_COPIED_LETTERS
    if not is_long:
        app.copy_to_clipboard(text)
    path = folder / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
        where = f"If your terminal did not take it, it is in {path}."
    except OSError:
        where = "Your terminal may not take it: mark it with the mouse then."
    return f"It is too long for a terminal's clipboard. {where}" if is_long else where
