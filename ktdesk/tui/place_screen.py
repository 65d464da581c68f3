"""What every place of the app has: the bar of places, its body, the keys, and a word where there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ktdesk.tui.widgets.key_line import KeyLine
from ktdesk.tui.widgets.place_bar import PlaceBar

if TYPE_CHECKING:
    from ktdesk.model_link import LinkState
    from ktdesk.tui.app import KtdeskApp

MIN_WIDTH, MIN_HEIGHT = 40, 10
LOW = 18
"""Lines, below which there are none to spare."""
NO_ROOM = f"ktdesk needs {MIN_WIDTH} x {MIN_HEIGHT} characters. Make the window larger; ctrl+q leaves."


class PlaceScreen(Screen[None]):
    """Subclasses yield their widgets from `compose_body`."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  as textual declares it
        (0, "-no-room"),
        (MIN_WIDTH, "-narrow"),
        (100, "-normal"),
        (130, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-no-height"),
        (MIN_HEIGHT, "-short"),
        (30, "-tall"),
    ]
    PLACE = ""
    """Its name among the places."""
    DEFAULT_CSS = """
    PlaceScreen {
        layout: vertical;
        #body { height: 1fr; }
        #no-room { display: none; height: 1fr; content-align: center middle; text-align: center; }
        &.-no-room, &.-no-height {
            #body, PlaceBar, KeyLine { display: none; }
            #no-room { display: block; }
        }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: Widget | None = None
        """What had the focus when the window became too small: what is hidden loses it."""

    def compose(self) -> ComposeResult:
        yield PlaceBar(self.PLACE)
        with Container(id="body"):
            yield from self.compose_body()
        yield Static(NO_ROOM, id="no-room")
        yield KeyLine(show_command_palette=False, compact=True)

    def compose_body(self) -> ComposeResult:
        yield from ()

    def on_mount(self) -> None:
        self.watch(self.app, "link_state", self._show_link)
        self.watch(self.app, "bound_keys", self._show_keys)
        self.watch(self.app, "demo_words", lambda: self._show_link(self.ktdesk.link_state))
        self.watch(self, "focused", self._keep_left)

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < LOW, "-low")
        left = self._left
        if left is not None and self._has_room:
            self._left = None
            self.call_after_refresh(self.set_focus, left)

    def _keep_left(self, before: Widget | None, now: Widget | None) -> None:
        if before is not None and now is None and not self._has_room:
            self._left = before

    @property
    def _has_room(self) -> bool:
        size = self.app.size
        return size.width >= MIN_WIDTH and size.height >= MIN_HEIGHT

    def _show_link(self, state: LinkState | None) -> None:
        bar = self.query_one(PlaceBar)
        making = self.ktdesk.demo_words
        bar.status, bar.tone = (making, "warning") if making else link_words(state)

    def _show_keys(self, keys: dict[str, str]) -> None:
        self.query_one(PlaceBar).keys = keys

    @property
    def ktdesk(self) -> KtdeskApp:
        return cast("KtdeskApp", self.app)

    def tell(self, error: BaseException | str, **more: Any) -> None:
        """A failure, as a notice."""
        self.ktdesk.tell_failure(error, **more)


def link_words(state: LinkState | None) -> tuple[str, str]:
    """How the model is, in a few words, and in which tone."""
    if state is None:
        return "", ""
    words = {
        "none": ("no model", ""),
        "starting": (f"{state.model} starts", "warning"),
        "loading": (f"{state.model} loads {state.percent:.0f} %", "warning"),
        "ready": (f"● {state.model}", "success"),
        "failed": (f"✗ {state.model} failed", "error"),
        "gone": (f"○ {state.model} was stopped", "warning")
        if state.was_told
        else (f"✗ {state.model} is gone", "error"),
    }
    return words[state.stage]
