"""The line of keys at the bottom: a key that has no room is left out, none is cut."""

from __future__ import annotations

from textual.geometry import Size
from textual.layout import ArrangeResult, Layout
from textual.layouts.horizontal import HorizontalLayout
from textual.widget import Widget
from textual.widgets import Footer


class WholeLayout(HorizontalLayout):
    """Leaves out what would reach beyond the width, and all after it."""

    name = "whole"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        placed = super().arrange(parent, children, size, greedy)
        return [placement for placement in placed if placement.region.right <= size.width]


WHOLE = WholeLayout()


class KeyLine(Footer):
    """Help has those that are left out, too."""

    @property
    def layout(self) -> Layout:
        return WHOLE
