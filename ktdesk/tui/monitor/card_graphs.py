"""Of each graphics card: how busy it is, how full its memory is, and what goes over PCIe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical

from ktdesk.amounts import bytes_text, speed_text
from ktdesk.tui.monitor.graph import Graph

if TYPE_CHECKING:
    from ktdesk.card_watching import CardMoment

MAX_CARDS = 8


class CardGraphs(Vertical):
    """Hidden where there is no card. Lines come as cards are seen."""

    DEFAULT_CSS = """
    CardGraphs { height: auto; display: none; }
    CardGraphs.-shown { display: block; }
    """

    async def show(self, cards: Sequence[CardMoment]) -> None:
        self.set_class(bool(cards), "-shown")
        for card in cards[:MAX_CARDS]:
            if not self.query(f"#card-{card.index}-busy"):
                await self.mount(_line_of(card))
            self._graph(card, "busy").add(card.busy_percent or 0.0, percent_words(card.busy_percent))
            self._graph(card, "memory").add((card.used_bytes or 0) / (card.total_bytes or 1), memory_words(card))
            rate = card.pcie_bytes_s
            self._graph(card, "pcie").add(rate or 0.0, "not told" if rate is None else speed_text(rate))

    def _graph(self, card: CardMoment, name: str) -> Graph:
        return self.query_one(f"#card-{card.index}-{name}", Graph)


def _line_of(card: CardMoment) -> Horizontal:
    n = card.index
    return Horizontal(
        Graph(f"GPU {n}", 100.0, id=f"card-{n}-busy"),
        Graph(f"GPU {n} memory", 1.0, id=f"card-{n}-memory"),
        Graph(f"GPU {n} PCIe", id=f"card-{n}-pcie"),
        classes="graphs",
    )


def percent_words(percent: float | None) -> str:
    return "not told" if percent is None else f"{percent:.0f} % busy"


def memory_words(card: CardMoment) -> str:
    if card.used_bytes is None or card.total_bytes is None:
        return "not told"
    return f"{bytes_text(card.used_bytes)} of {bytes_text(card.total_bytes)}"
