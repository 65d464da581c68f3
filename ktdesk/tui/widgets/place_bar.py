"""The line at the top: the places, where one is, and how the model is."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ktdesk.tui.keys import KEYS
from ktdesk.tui.places import PLACES

TITLES_WIDTH = 78
"""From here on there is room for all titles and the model."""


class PlaceBar(Widget):
    """Clicking a title goes there."""

    HELP = "The places of the app. Each has a key; a click goes there, too."
    DEFAULT_CSS = """
    PlaceBar {
        height: 1; dock: top; background: $panel; color: $foreground;
    }
    """
    status: reactive[str] = reactive("")
    """How the model is, in a few words."""
    tone: reactive[str] = reactive("")
    """`success`, `warning`, `error` or nothing: the colour of the status."""
    keys: reactive[dict[str, str]] = reactive({})
    """What users bound anew, by name."""

    def __init__(self, here: str) -> None:
        super().__init__()
        self.here = here
        self.auto_links = False  # a title has its own colours, which those of a link would make hard to read

    def render(self) -> Content:
        titles = self._titles(with_all=self.size.width >= TITLES_WIDTH)
        room = self.size.width - titles.cell_length - 1
        status = Content.styled(self._status(room), f"${self.tone}" if self.tone else "")
        return titles + Content(" " * max(0, room - status.cell_length)) + status + Content(" ")

    def _titles(self, *, with_all: bool) -> Content:
        """Without room, the keys alone, but for the place where one is."""
        here, key_style = "$background on $primary bold", "$primary"
        if self.app.native_ansi_color:
            here, key_style = "bold reverse", "ansi_blue"
        parts = []
        for place in PLACES:
            key = self.keys.get(place.key_name, KEYS[place.key_name].key).split(",")[0].upper()
            is_here = place.name == self.here
            text = f" {key} {place.title} " if with_all or is_here else f" {key} "
            content = Content(text).stylize(here if is_here else "")
            if not is_here:
                content = content.stylize(key_style, 1, 1 + len(key))
            parts.append(content.stylize(f"@click=app.show_place('{place.name}')"))
        return Content("").join(parts)

    def _status(self, room: int) -> str:
        return self.status if len(self.status) <= room else self.status[: max(0, room - 1)] + "…"
