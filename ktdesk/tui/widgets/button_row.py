"""Buttons beside each other, and below where the line is full: none is cut."""

from __future__ import annotations

from textual.containers import Container
from textual.geometry import Size
from textual.layout import ArrangeResult, Layout
from textual.layouts.horizontal import HorizontalLayout
from textual.widget import Widget


class WrappedLayout(HorizontalLayout):
    """Moves to the next line what would reach beyond the width."""

    name = "wrapped"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        placed = []
        left = top = bottom = 0  # of the line, as if all stood in one
        for placement in super().arrange(parent, children, size, greedy):
            region = placement.region.translate((-left, top))
            if region.right > size.width and region.x > 0:
                left, top = placement.region.x, bottom
                region = placement.region.translate((-left, top))
            bottom = max(bottom, region.bottom)
            placed.append(placement._replace(region=region))
        return placed


WRAPPED = WrappedLayout()


class ButtonRow(Container):
    DEFAULT_CSS = """
    ButtonRow {
        width: 1fr; height: auto; padding: 0 1;
        Button { height: 1; min-width: 8; max-width: 100%; border: none; margin-right: 1; }
    }
    """

    @property
    def layout(self) -> Layout:
        return WRAPPED
