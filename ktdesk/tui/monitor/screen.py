"""Monitor: what the server does now, what holds it up, and where the experts are used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import psutil
from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ktdesk.amounts import bytes_text, counted
from ktdesk.card_watching import CardWatcher
from ktdesk.expert_placing import ExpertHeat, Placing, Room, better_placing, rooms_of_a_card
from ktdesk.server_records import ServerRecord
from ktdesk.tui.markdown.harmless import harmless
from ktdesk.tui.monitor.card_graphs import CardGraphs
from ktdesk.tui.monitor.graph import Graph
from ktdesk.tui.monitor.heat_map import HeatMap, legend_words
from ktdesk.tui.monitor.placing_words import card_content, exchanges_content, marks_of
from ktdesk.tui.monitor.server_graphs import MEASURING, ServerGraphs
from ktdesk.tui.place_screen import PlaceScreen
from ktdesk.watching import AcceleratorMemory, Moment, Watcher, heat_words, limit_words

SECONDS_BETWEEN_LOOKS = 1.0
LOOKS_BETWEEN_HEATS = 5
BORDER_WIDTH = 20
"""Of the bar that experts and cache share."""
NO_SERVER = "No model is loaded: there is nothing to watch. Chat loads one."


class Everything(VerticalScroll):
    HELP = """What the server does, once a second. The first line says what limits it; the graphs have their newest
value at the right and their ceiling at the top. Below, each line is a layer and each place an expert, the fuller the
more tokens went there; the table says which experts would lie better elsewhere."""


class MonitorScreen(PlaceScreen):
    """Looks once a second, and only while it is seen."""

    PLACE = "monitor"
    AUTO_FOCUS: ClassVar[str] = "#all"
    HORIZONTAL_BREAKPOINTS = [(0, "-no-room"), (40, "-narrow"), (72, "-normal"), (120, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-no-height"), (10, "-short"), (46, "-tall")]  # noqa: RUF012
    DEFAULT_CSS = """
    MonitorScreen {
        #all { height: 1fr; }
        #limit { height: auto; padding: 0 1; text-style: bold; }
        .graphs { height: 4; }
        #facts, #words, #placing, #legend { height: auto; padding: 0 1; }
        #facts { margin-top: 1; }
        #words { margin-top: 1; text-style: bold; }
        &.-narrow .graphs { height: auto; layout: vertical; }
        &.-narrow Graph { width: 100%; }
        &.-narrow ServerGraphs { grid-size: 1; }
        &.-wide ServerGraphs { grid-size: 3; }
        &.-tall .graphs { height: 6; }
        &.-tall Graph { height: 6; }
        &.-tall ServerGraphs { grid-rows: 6; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._watcher: Watcher | None = None
        self._own = psutil.Process()
        self._num_looks = 0
        self._cards: CardWatcher | None = None

    def compose_body(self) -> ComposeResult:
        with Everything(id="all"):
            yield Static(NO_SERVER, id="limit", markup=False)
            yield ServerGraphs()
            yield CardGraphs()
            yield Static(id="facts", markup=False)
            yield Static(id="words", markup=False)
            yield Static(id="placing", markup=False)
            yield Static(id="legend", markup=False)
            yield HeatMap(id="heat")

    @property
    def own_percent(self) -> float:
        """Of a core, since the last look: what the app takes itself."""
        return float(self._own.cpu_percent())

    def on_unmount(self) -> None:
        if self._cards is not None:
            self._cards.close()

    def on_screen_resume(self) -> None:
        self._watch()

    def on_screen_suspend(self) -> None:
        self.workers.cancel_group(self, "watch")

    @work(exclusive=True, group="watch")
    async def _watch(self) -> None:
        while True:
            watcher = self._watcher_now()
            moment = None if watcher is None else await asyncio.to_thread(watcher.look)
            await self._show(moment)
            await self._show_cards()
            if watcher is not None and moment is not None and self._num_looks % LOOKS_BETWEEN_HEATS == 0:
                await self._show_experts(await asyncio.to_thread(watcher.experts))
            self._num_looks += 1
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    async def _show_cards(self) -> None:
        """They are there without a server, too."""
        if self._cards is None:
            self._cards = await asyncio.to_thread(CardWatcher)
        await self.query_one(CardGraphs).show(await asyncio.to_thread(self._cards.look))

    def _watcher_now(self) -> Watcher | None:
        """Of the server that the app is linked to."""
        link = self.ktdesk.link
        record = link.record
        if record is None:
            self._watcher = None
        elif self._watcher is None or self._watcher.record != record:
            self._watcher = Watcher(record, link.api_key)
            self._num_looks = 0
        return self._watcher

    async def _show(self, moment: Moment | None) -> None:
        limit = self.query_one("#limit", Static)
        if moment is None:
            state = self.ktdesk.link.state
            ended = f"{state.model}: {harmless(state.reason)}" if state.stage in ("gone", "failed") else ""
            limit.update(ended or (NO_SERVER if self._watcher is None else "The server does not answer."))
            self._clear()
            return
        limit.update(limit_words(moment))
        await self.query_one(ServerGraphs).show(moment)
        self.query_one("#facts", Static).update(facts_words(moment, self.own_percent))

    def _clear(self) -> None:
        """What was there is no more: numbers of before would pass for those of now."""
        for graph in self.query(Graph):
            graph.add(0.0, "-")
        for name in ("#facts", "#words", "#placing", "#legend"):
            self.query_one(name, Static).update("")
        heat_map = self.query_one(HeatMap)
        heat_map.heat, heat_map.marks = ExpertHeat(), {}

    async def _show_experts(self, heat: ExpertHeat) -> None:
        heat_map, placing = self.query_one(HeatMap), self.query_one("#placing", Static)
        self.query_one("#words", Static).update(heat_words(heat) if heat.rates else "")
        better, rooms = await asyncio.to_thread(lambda: (better_placing(heat), rooms_of_a_card(heat)))
        placing.update("" if self._watcher is None else self._placing(heat, better, rooms, self._watcher.record))
        self.query_one("#legend", Static).update(legend_words(heat, heat_map.size.width) if heat.rates else "")
        heat_map.heat, heat_map.marks = heat, marks_of(better)

    def _placing(self, heat: ExpertHeat, better: Placing | None, rooms: list[Room], record: ServerRecord) -> Content:
        name = profile_name(record.path)
        if better is not None:
            return exchanges_content(heat, better, record.options, name, self.size.width - 2)
        return card_content(heat, rooms, name) if heat.total and heat.resident is None else Content("")


def profile_name(model_path: str) -> str:
    """Of the record of how experts are used, as `ktdesk profile ls use` has it."""
    return Path(model_path).name.removesuffix(".gguf").lower()


def accelerator_words(memory: AcceleratorMemory) -> str:
    """A bar of what experts and the cache have of its memory, and the border between them."""
    filled = min(max(round(BORDER_WIDTH * memory.expert_share), 0), BORDER_WIDTH)
    bar = "█" * filled + "░" * (BORDER_WIDTH - filled)
    return (
        f"Accelerator {bar} {counted(memory.num_experts, 'expert')} {bytes_text(memory.expert_bytes)} │ "
        f"cache {bytes_text(memory.cache_bytes)}"
    )


def facts_words(moment: Moment, own_percent: float) -> str:
    hits = sum(moment.num_hits.values())
    pages = hits + moment.num_missed
    by_tier = ", ".join(f"{tier} {count}" for tier, count in moment.num_hits.items())
    found = f"{100 * hits / pages:.0f} % of {pages:,} pages found ({by_tier})" if pages else "no lookups yet"
    taken = f"the server takes {moment.process_percent:.0f} % of a core, this app {own_percent:.1f} %"
    ram = f" · memory tier {bytes_text(moment.ram_bytes)} of {bytes_text(moment.ram_limit_bytes)}"
    return "\n".join(
        [
            f"Requests    {moment.num_decoding} answering, {moment.num_prefilling} reading their prompt, "
            f"{moment.num_waiting} waiting; {counted(moment.num_open_requests, 'connection')}",
            f"Prefixes    {found}{ram if moment.ram_limit_bytes else ''}",
            *([] if moment.accelerator is None else [accelerator_words(moment.accelerator)]),
            f"Memory      the server has {bytes_text(moment.resident_bytes)}; "
            f"{bytes_text(moment.available_bytes)} are available",
            f"Processes   {taken if moment.has_rates else MEASURING}",
        ]
    )
