"""Pictures of Monitor and Server: a server that is always at the same moment, and numbers of before that are given."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from driving import FakeLink, shown, until
from pictures import SIZES, Compare, compare
from textual.pilot import Pilot

from ktdesk.card_watching import CardMoment
from ktdesk.model_link import LinkState
from ktdesk.server_records import ServerRecord
from ktdesk.tui.monitor.graph import Graph
from ktdesk.tui.monitor.heat_map import HeatMap
from ktdesk.tui.monitor.screen import MonitorScreen
from ktdesk.watching import ExpertHeat, Moment, heat_words

NUM_LAYERS, NUM_EXPERTS = 48, 128
MOMENT = Moment(
    tok_s=43.7, prompt_tok_s=0.0, num_decoding=2, num_waiting=1, num_open_requests=3, read_bytes_s=16.9e9,
    bandwidth_share=0.84, node_percents={0: 97.0, 1: 91.0}, process_percent=190, resident_bytes=17 << 30,
    available_bytes=40 << 30, num_hits={"pool": 12, "ram": 30, "disk": 10}, num_missed=10, ram_bytes=1 << 30,
    ram_limit_bytes=4 << 30,
)  # fmt: skip


def heat() -> ExpertHeat:
    """Some experts much used, in other places in each layer; a fifth of them on an accelerator."""

    def rate(layer: int, expert: int) -> float:
        return max(0.0, math.sin(expert / 7 + layer / 3) + 0.6 * math.sin(expert * (layer + 3) / 5))

    rates = [[rate(layer, expert) for expert in range(NUM_EXPERTS)] for layer in range(NUM_LAYERS)]
    resident = [[expert % 5 == layer % 5 for expert in range(NUM_EXPERTS)] for layer in range(NUM_LAYERS)]
    return ExpertHeat(rates, resident)


class FakeWatcher:
    def __init__(self, record: ServerRecord, api_key: str | None = None) -> None:
        self.record = record

    def look(self) -> Moment:
        return MOMENT

    def experts(self) -> ExpertHeat:
        return ExpertHeat()


class FakeCards:
    def look(self) -> tuple[CardMoment, ...]:
        return (CardMoment(0, 63.0, 31 << 30, 48 << 30, 11.2e9),)

    def close(self) -> None: ...


class FakeTail:
    def __init__(self, path: Path) -> None:
        self._text = "".join(f"12:00:0{second} INFO answer of 311 tokens at 43.7 tok/s\n" for second in range(6))

    def more(self) -> str:
        text, self._text = self._text, ""
        return text


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    for module in ("monitor", "server"):
        monkeypatch.setattr(f"ktdesk.tui.{module}.screen.Watcher", FakeWatcher)
        monkeypatch.setattr(f"ktdesk.tui.{module}.screen.SECONDS_BETWEEN_LOOKS", 3600.0)
    monkeypatch.setattr("ktdesk.tui.monitor.screen.MonitorScreen.own_percent", 1.4)
    monkeypatch.setattr("ktdesk.tui.monitor.screen.CardWatcher", FakeCards)
    monkeypatch.setattr("ktdesk.tui.server.screen.LogTail", FakeTail)
    monkeypatch.setattr("ktdesk.tui.server.screen.time.time", lambda: 4_000.0)
    made = FakeLink(LinkState("ready", "Qwen3-30B-A3B", "http://127.0.0.1:8080", "/models/q.gguf", 100.0, context=4096))
    made.record = ServerRecord(
        1, 0.0, "http://127.0.0.1:8080", 8080, "Qwen3-30B-A3B", "/models/q.gguf", "/run/ktdesk/8080.log", False, {}
    )
    return made


def show_history(screen: MonitorScreen) -> None:
    """As if it had been watched for a while."""
    shapes = {
        "answers": lambda t: 38 + 6 * math.sin(t / 5),
        "prompts": lambda t: 900.0 if t % 60 < 6 else 0.0,
        "memory": lambda t: 0.78 + 0.08 * math.sin(t / 5),
        "cores": lambda t: 92 + 6 * math.sin(t / 3),
        "card-0-busy": lambda t: 60 + 8 * math.sin(t / 4),
        "card-0-memory": lambda t: 0.65,
        "card-0-pcie": lambda t: 11 + 2 * math.sin(t / 6),
    }
    for name, shape in shapes.items():
        graph = screen.query_one(f"#{name}", Graph)
        words = graph.words
        graph._values.clear()
        for moment in range(240):
            graph.add(shape(moment), words)
    screen.query_one(HeatMap).heat = heat()
    screen.query_one("#words").update(heat_words(heat()))  # type: ignore[attr-defined]


@SIZES
def test_monitor(snap_compare: Compare, size: tuple[int, int], link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "memory-bound" in shown(pilot.app) and pilot.app.screen.query("#card-0-pcie"))
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        screen.workers.cancel_group(screen, "watch")
        show_history(screen)

    compare(snap_compare, link, size, script)


@SIZES
def test_server(snap_compare: Compare, size: tuple[int, int], link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "answer of 311 tokens" in shown(pilot.app))
        await until(pilot, lambda: "127.0.0.1:8080" in shown(pilot.app))

    compare(snap_compare, link, size, script)
