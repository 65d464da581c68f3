"""A number over time, as bars against its ceiling."""

from __future__ import annotations

from collections import deque

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

EIGHTHS = " ▁▂▃▄▅▆▇█"
HISTORY = 240


class Graph(Widget):
    """One line of words, the bars below it."""

    HELP = "A number of the server over time, newest at the right. A full bar is the ceiling."
    DEFAULT_CSS = """
    Graph { height: 4; width: 1fr; padding: 0 1; }
    """
    title: reactive[str] = reactive("")
    words: reactive[str] = reactive("")

    def __init__(self, title: str, ceiling: float | None = None, id: str | None = None) -> None:
        """ceiling: what a full bar is; None: the largest number so far."""
        super().__init__(id=id)
        self.set_reactive(Graph.title, title)
        self.ceiling = ceiling
        self._values: deque[float] = deque(maxlen=HISTORY)

    def add(self, value: float, words: str) -> None:
        self._values.append(value)
        self.words = words
        self.refresh()

    def render(self) -> Content:
        width, height = self.size.width, max(1, self.size.height - 1)
        top = self.ceiling or max([*self._values, 1e-9])
        head = Content.assemble((self.title, "bold"), "  ", (self.words, "$primary"))
        head = head.truncate(max(1, width), ellipsis=True)
        values = list(self._values)[-width:]
        rows = [bar_row(values, top, row, height).rjust(width) for row in range(height - 1, -1, -1)]
        return Content("\n").join([head, *(Content.styled(row, "$primary") for row in rows)])


def bar_row(values: list[float], top: float, row: int, height: int) -> str:
    """One of the lines that bars are high, from the bottom. Each is a character wide."""
    steps = [round(min(max(value / top, 0.0), 1.0) * 8 * height) - 8 * row for value in values]
    return "".join(EIGHTHS[min(max(step, 0), 8)] for step in steps)
