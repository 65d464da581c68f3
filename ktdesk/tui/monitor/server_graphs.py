"""What a server does, each number as a graph: answers, memory, prompts, arithmetic, and the cores of each node."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid

from ktdesk.amounts import speed_text
from ktdesk.tui.monitor.graph import Graph
from ktdesk.watching import Moment

TILES, VECTORS = "Tiles (AMX)", "Vectors"
MEASURING = "measuring"
"""In the place of a rate, until there are two looks to take it from."""


class ServerGraphs(Grid):
    """Those of nodes come as they are seen."""

    DEFAULT_CSS = """
    ServerGraphs { height: auto; grid-size: 2; grid-rows: 4; }
    """

    def compose(self) -> ComposeResult:
        yield Graph("Answers", id="answers")
        yield Graph("Memory read", 1.0, id="memory")
        yield Graph("Prompts", id="prompts")
        yield Graph("Arithmetic", 1.0, id="arithmetic")

    async def show(self, moment: Moment) -> None:
        self._graph("answers").add(moment.tok_s, rate_words(moment, f"{moment.tok_s:,.1f} tok/s"))
        self._graph("memory").add((moment.bandwidth_share or 0.0) if moment.is_busy else 0.0, memory_words(moment))
        self._graph("prompts").add(moment.prompt_tok_s, rate_words(moment, f"{moment.prompt_tok_s:,.0f} tok/s"))
        arithmetic = self._graph("arithmetic")
        arithmetic.title = TILES if moment.is_on_tiles else VECTORS
        arithmetic.add((moment.peak_share or 0.0) if moment.is_reading else 0.0, arithmetic_words(moment))
        await self._show_nodes(moment)

    async def _show_nodes(self, moment: Moment) -> None:
        percents = moment.node_percents
        for node, percent in percents.items():
            if not self.query(f"#node-{node}"):
                title = "Cores" if len(percents) == 1 else f"Cores of node {node}"
                await self.mount(Graph(title, 100.0, id=f"node-{node}"))
            self._graph(f"node-{node}").add(percent, rate_words(moment, f"{percent:.0f} % busy"))

    def _graph(self, name: str) -> Graph:
        return self.query_one(f"#{name}", Graph)


def rate_words(moment: Moment, words: str) -> str:
    return words if moment.has_rates else MEASURING


def memory_words(moment: Moment) -> str:
    """While it decodes; what was read last is no rate of now."""
    if not moment.is_busy or moment.read_bytes_s is None:
        return "-"
    ceiling = moment.ceiling_bytes_s
    read = speed_text(moment.read_bytes_s)
    return read if ceiling is None else f"{read} of {speed_text(ceiling)}"


def arithmetic_words(moment: Moment) -> str:
    """While it reads a prompt, for the same reason."""
    if not moment.is_reading or moment.ops_s is None:
        return "-"
    if not moment.peak_share:
        return f"{operations_text(moment.ops_s)}, peak not measured"
    return f"{moment.peak_share * 100:.0f} % of {operations_text(moment.ops_s / moment.peak_share)}"


def operations_text(ops_s: float) -> str:
    return f"{ops_s / 1e12:,.2f} Top/s" if ops_s >= 1e11 else f"{ops_s / 1e9:,.1f} Gop/s"
