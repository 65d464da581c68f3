"""The colours of the app. `ansi-dark` and `ansi-light` take those of the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping

from textual.theme import Theme

DARK = Theme(
    name="ktdesk-dark",
    primary="#6cb6ff",
    secondary="#8ddb8c",
    accent="#e6b455",
    warning="#e6b455",
    error="#f47067",
    success="#8ddb8c",
    foreground="#d6dbe3",
    background="#15181d",
    surface="#1b1f26",
    panel="#252b34",
    variables={"footer-key-foreground": "#6cb6ff", "block-cursor-text-style": "none"},
)
LIGHT = Theme(
    name="ktdesk-light",
    primary="#0a5cad",
    secondary="#176f31",
    accent="#8a5a00",
    warning="#8a5a00",
    error="#b81f28",
    success="#176f31",
    foreground="#20242a",
    background="#fbfbfc",
    surface="#f1f3f5",
    panel="#e3e7eb",
    dark=False,
    variables={"footer-key-foreground": "#0a5cad", "block-cursor-text-style": "none"},
)
THEMES = (DARK, LIGHT)
FEW_COLOURS = "ansi-dark"


def default_theme(environment: Mapping[str, str] = os.environ) -> str:
    """Where a terminal has sixteen colours, ours would come out as any of them."""
    term = environment.get("TERM", "")
    has_many = "COLORTERM" in environment or "256" in term or "direct" in term or "kitty" in term
    return DARK.name if has_many else FEW_COLOURS
