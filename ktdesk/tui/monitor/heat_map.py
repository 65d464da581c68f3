"""Experts by layer, the darker the more they are used; letters mark those that would change places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ktdesk.expert_placing import ExpertHeat, Place

SHADES = " ·░▒▓█"


class Cell(NamedTuple):
    """One expert, or several side by side."""

    text: str
    is_resident: bool
    """Some of them is on the accelerator."""
    is_marked: bool = False

    @property
    def style(self) -> str:
        if self.is_marked:
            return "bold reverse $warning"
        return "$accent" if self.is_resident else "$primary"


class HeatMap(Widget):
    """A line a layer, a character for one expert or for several side by side."""

    HELP = """Layers from top to bottom, experts from left to right; the fuller a place, the more tokens went there.
Letters are experts that would change places: the large one comes onto the accelerator, the small one goes."""
    DEFAULT_CSS = """
    HeatMap { height: auto; min-height: 3; padding: 0 1; }
    """
    heat: reactive[ExpertHeat] = reactive(ExpertHeat(), layout=True)
    marks: reactive[Mapping[Place, str]] = reactive({})

    def render(self) -> Content:
        lines = heat_lines(self.heat, _room(self.size.width), self.marks)
        return Content("\n").join(
            Content.assemble((f"{self.heat.block(layer):>3} ", "dim"), *_runs(cells))
            for layer, cells in enumerate(lines)
        )


def legend_words(heat: ExpertHeat, width: int) -> str:
    """What the lines and places of a map are, and its scale. width: of the map's widget."""
    together = 1 if not heat.rates else _num_together(len(heat.rates[0]), _room(width))
    columns = "experts" if together == 1 else f"{together} experts each"
    return f"Rows: layers. Columns: {columns}. {' '.join(SHADES[1:])}  a fifth to all of the row's most"


def _room(width: int) -> int:
    """For the experts, beside the layer's number."""
    return max(8, width - 5)


def _num_together(num_experts: int, width: int) -> int:
    """Experts that share a place."""
    return -(-num_experts // width)


def heat_lines(heat: ExpertHeat, width: int, marks: Mapping[Place, str] | None = None) -> list[list[Cell]]:
    """Of each layer."""
    of_layers: dict[int, dict[int, str]] = {}
    for place, mark in (marks or {}).items():
        of_layers.setdefault(place.layer, {})[place.expert] = mark
    return [list(_cells(heat, layer, width, of_layers.get(layer, {}))) for layer in range(len(heat.rates))]


def _cells(heat: ExpertHeat, layer: int, width: int, marks: Mapping[int, str]) -> Iterator[Cell]:
    row = heat.rates[layer]
    resident = heat.resident[layer] if heat.resident is not None else [False] * len(row)
    together = _num_together(len(row), width)
    starts = range(0, len(row), together)
    sums = [sum(row[start : start + together]) for start in starts]
    largest = max([*sums, 1e-9])
    for value, start in zip(sums, starts, strict=True):
        marked = [marks[expert] for expert in range(start, start + together) if expert in marks]
        is_resident = any(resident[start : start + together])
        yield Cell(marked[0] if marked else shade(value / largest), is_resident, bool(marked))


def _runs(cells: list[Cell]) -> Iterator[tuple[str, str]]:
    """Text and style of those side by side that look alike."""
    for style, run in groupby(cells, key=lambda cell: cell.style):
        yield "".join(cell.text for cell in run), style


def shade(share: float) -> str:
    return SHADES[min(len(SHADES) - 1, round(share * (len(SHADES) - 1)))]
