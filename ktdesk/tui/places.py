"""The places of the app, in the order of the bar at the top. A place is a screen that stays as it was left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from ktdesk.tui.kernels_first import import_kernels

if TYPE_CHECKING:
    from ktdesk.tui.place_screen import PlaceScreen


@dataclass(frozen=True)
class Place:
    name: str
    title: str
    screen: str
    """`module:class`, imported when somebody goes there: the first picture must not wait for all of them."""
    uses_kernels: bool = False

    @property
    def key_name(self) -> str:
        """In the table of keys."""
        return f"app.{self.name}"

    def make(self) -> PlaceScreen:
        if self.uses_kernels:
            import_kernels()
        module, _, name = self.screen.partition(":")
        kind = cast("Callable[[], PlaceScreen]", getattr(import_module(f"ktdesk.tui.{module}"), name))
        return kind()


PLACES = (
    Place("chat", "Chat", "chat.screen:ChatScreen"),
    Place("setup", "Setup", "setup.screen:SetupScreen"),
    Place("monitor", "Monitor", "monitor.screen:MonitorScreen", uses_kernels=True),
    Place("server", "Server", "server.screen:ServerScreen"),
    Place("settings", "Settings", "settings_screen:SettingsScreen"),
)
FIRST_PLACE = "chat"
