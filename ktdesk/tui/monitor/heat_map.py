"""Experts by layer, the darker the more they are used."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ktdesk.watching import ExpertHeat

SHADES = " ·░▒▓█"


class HeatMap(Widget):
    """A line a layer, a character for one expert or for several side by side."""

    HELP = "Layers from top to bottom, experts from left to right; the fuller a place, the more tokens went there."
    DEFAULT_CSS = """
    HeatMap { height: auto; min-height: 3; padding: 0 1; }
    """
    heat: reactive[ExpertHeat] = reactive(ExpertHeat(), layout=True)

    def render(self) -> Content:
        lines = heat_lines(self.heat, max(8, self.size.width - 5))
        return Content("\n").join(
            Content.assemble((f"{layer:>3} ", "dim"), *((text, "$accent" if on else "$primary") for text, on in pieces))
            for layer, pieces in enumerate(lines)
        )


def heat_lines(heat: ExpertHeat, width: int) -> list[list[tuple[str, bool]]]:
    """Of each layer, characters and whether any of their experts lies on the accelerator."""
    lines = []
    for layer, row in enumerate(heat.rates):
        together = -(-len(row) // width)
        resident = heat.resident[layer] if heat.resident is not None else [False] * len(row)
        starts = range(0, len(row), together)
        sums = [sum(row[start : start + together]) for start in starts]
        largest = max([*sums, 1e-9])
        lines.append(
            [
                (shade(value / largest), any(resident[start : start + together]))
                for value, start in zip(sums, starts, strict=True)
            ]
        )
    return lines


def shade(share: float) -> str:
    return SHADES[min(len(SHADES) - 1, round(share * (len(SHADES) - 1)))]
