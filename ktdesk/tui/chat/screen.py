"""Chat."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import TextArea

from ktdesk.tui.place_screen import PlaceScreen


class ChatScreen(PlaceScreen):
    PLACE = "chat"

    def compose_body(self) -> ComposeResult:
        yield TextArea()
