"""One of several values in their order, turned by arrows or by a click on its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

LABEL_WIDTH, VALUE_WIDTH = 15, 26


class Stop(NamedTuple):
    """One of the values."""

    value: object
    text: str


class Slider(Widget, can_focus=True):
    """A label, the value between arrows, and a line with a knob."""

    HELP = "Left and right turn it, Home and End go to its ends; a click on the line sets it."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "Less", show=False),
        Binding("right", "turn(1)", "More", show=False),
        Binding("home", "turn(-1000)", "First", show=False),
        Binding("end", "turn(1000)", "Last", show=False),
    ]
    DEFAULT_CSS = """
    Slider { height: 1; width: 1fr; padding: 0 1; }
    Slider:focus { background: $primary 20%; }
    Slider:nocolor:focus { text-style: reverse; }
    Slider:ansi:focus { background: ansi_default; text-style: reverse; }
    """
    index: reactive[int] = reactive(0)

    class Changed(Message):
        def __init__(self, slider: Slider) -> None:
            super().__init__()
            self.slider = slider

        @property
        def control(self) -> Slider:
            return self.slider

    def __init__(self, label: str, stops: Sequence[Stop] = (Stop(None, "-"),), index: int = 0, id: str = "") -> None:
        super().__init__(id=id or None)
        self._label = label
        self._stops = tuple(stops)
        self.set_reactive(Slider.index, index)

    @property
    def value(self) -> object:
        return self._stops[self.index].value

    def set_stops(self, stops: Sequence[Stop], value: object) -> None:
        """Other values, and which of them it is at: the first where it is none of them. Posts nothing."""
        self._stops = tuple(stops)
        values = [stop.value for stop in stops]
        self.set_reactive(Slider.index, values.index(value) if value in values else 0)
        self.refresh()

    def render(self) -> Content:
        before, after = ("◂" if self.index else " "), ("▸" if self.index < len(self._stops) - 1 else " ")
        text = self._stops[self.index].text[:VALUE_WIDTH]
        head = Content.assemble(
            (f"{self._label:<{LABEL_WIDTH}}", "$foreground 75%"), f"{before} ", (text, "bold"), f" {after}"
        )
        room = self.size.width - self._start - 1
        if room < 4:
            return head
        knob = self._place(self.index, room)
        head = head.pad_right(max(0, self._start - head.cell_length))
        return Content.assemble(head, ("━" * knob, "$primary"), ("●", "$primary"), ("─" * (room - knob - 1), "dim"))

    @property
    def _start(self) -> int:
        """Of the line."""
        return LABEL_WIDTH + VALUE_WIDTH + 5

    def _place(self, index: int, room: int) -> int:
        return round(index / max(len(self._stops) - 1, 1) * (room - 1))

    def action_turn(self, step: int) -> None:
        index = min(max(self.index + step, 0), len(self._stops) - 1)
        if index != self.index:
            self.index = index
            self.post_message(self.Changed(self))

    def on_click(self, event: Click) -> None:
        place, room = event.x - 1 - self._start, self.size.width - self._start - 1
        if place < 0 or room < 4:
            at = event.x - 1 - LABEL_WIDTH
            self.action_turn(-1 if 0 <= at < 2 else 1)
            return
        self.action_turn(round(place / (room - 1) * (len(self._stops) - 1)) - self.index)
