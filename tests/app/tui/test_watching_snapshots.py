"""Pictures of Monitor and Server: a server that is always at the same moment, and numbers of before that are given."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from driving import FakeLink, shown, until
from pictures import SIZES, Compare, compare, settle
from textual.pilot import Pilot
from textual.widgets import Input, Log, Select

from ktdesk.card_watching import CardMoment
from ktdesk.expert_placing import ExpertHeat
from ktdesk.model_link import LinkState
from ktdesk.quality_figures import save_figures
from ktdesk.server_records import ServerRecord
from ktdesk.tui.monitor.graph import Graph
from ktdesk.tui.monitor.screen import MonitorScreen
from ktdesk.watching import AcceleratorMemory, Moment

NUM_LAYERS, NUM_EXPERTS = 48, 128
MOMENT = Moment(
    tok_s=43.7, prompt_tok_s=0.0, num_decoding=2, num_waiting=1, num_open_requests=3, read_bytes_s=16.9e9,
    bandwidth_share=0.84, node_percents={0: 97.0, 1: 91.0}, process_percent=190, resident_bytes=17 << 30,
    available_bytes=40 << 30, num_hits={"pool": 12, "ram": 30, "disk": 10}, num_missed=10, ram_bytes=1 << 30,
    ram_limit_bytes=4 << 30, accelerator=AcceleratorMemory(1230 * 2_654_208, 1230, 1 << 30),
)  # fmt: skip


def heat() -> ExpertHeat:
    """Some experts much used, in other places in each layer; a fifth of them on an accelerator."""

    def rate(layer: int, expert: int) -> float:
        return max(0.0, math.sin(expert / 7 + layer / 3) + 0.6 * math.sin(expert * (layer + 3) / 5))

    rates = [[rate(layer, expert) for expert in range(NUM_EXPERTS)] for layer in range(NUM_LAYERS)]
    resident = [[expert % 5 == layer % 5 for expert in range(NUM_EXPERTS)] for layer in range(NUM_LAYERS)]
    return ExpertHeat(rates, resident, slot_bytes=2_654_208)


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
    monkeypatch.setattr("ktdesk.tui.server.server_words.time.time", lambda: 4_000.0)
    made = FakeLink(LinkState("ready", "Qwen3-30B-A3B", "http://127.0.0.1:8080", "/models/q.gguf", 100.0, context=4096))
    made.record = ServerRecord(
        1,
        0.0,
        "http://127.0.0.1:8080",
        8080,
        "Qwen3-30B-A3B",
        "/models/q.gguf",
        "/run/ktdesk/8080.log",
        False,
        {"move_ms": 2.0, "placement_strategy": "frequency"},
    )
    return made


def show_history(screen: MonitorScreen) -> None:
    """As if it had been watched for a while."""
    shapes = {
        "answers": lambda t: 38 + 6 * math.sin(t / 5),
        "prompts": lambda t: 900.0 if t % 60 < 6 else 0.0,
        "memory": lambda t: 0.78 + 0.08 * math.sin(t / 5),
        "arithmetic": lambda t: 0.31 if t % 60 < 6 else 0.0,
        "node-0": lambda t: 92 + 6 * math.sin(t / 3),
        "node-1": lambda t: 88 + 8 * math.sin(t / 4),
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


async def show_heat(pilot: Pilot[None]) -> None:
    """What the engine's options are is told, too."""
    screen = pilot.app.screen
    assert isinstance(screen, MonitorScreen)
    await screen._show_experts(heat())


@SIZES
def test_monitor(snap_compare: Compare, size: tuple[int, int], link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "memory-bound" in shown(pilot.app) and pilot.app.screen.query("#card-0-pcie"))
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        screen.workers.cancel_group(screen, "watch")
        show_history(screen)
        await show_heat(pilot)

    compare(snap_compare, link, size, script)


@SIZES
def test_monitor_without_an_accelerator(
    snap_compare: Compare, size: tuple[int, int], link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrolled to the experts, while a prompt is read."""
    reading = replace(
        MOMENT, tok_s=0.0, num_decoding=0, prompt_tok_s=912.0, num_prefilling=1, ops_s=5.4e12, peak_share=0.41,
        is_on_tiles=True, node_percents={0: 99.0}, accelerator=None,
    )  # fmt: skip
    monkeypatch.setattr(FakeWatcher, "look", lambda self: reading)
    monkeypatch.setattr(FakeCards, "look", lambda self: ())

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "compute-bound" in shown(pilot.app))
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        screen.workers.cancel_group(screen, "watch")
        await screen._show_experts(replace(heat(), resident=None))
        await settle(pilot)
        screen.query_one("#all").scroll_to(y=8, animate=False, immediate=True)

    compare(snap_compare, link, size, script)


@SIZES
def test_server(snap_compare: Compare, size: tuple[int, int], link: FakeLink) -> None:
    assert link.record is not None
    link.others = [
        replace(link.record, pid=2, started=400.0, port=8091, model="smolmoe", changed={"cache_type": "q8_0"}),
        replace(link.record, pid=3, started=3_900.0, port=39117, model="gpt-oss-20b"),
    ]

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "gpt-oss-20b" in shown(pilot.app))
        log = pilot.app.screen.query_one("#log", Log)
        await until(pilot, lambda: log.line_count > 5)

    compare(snap_compare, link, size, script)


@SIZES
def test_options_that_a_model_is_loaded_with(snap_compare: Compare, size: tuple[int, int], link: FakeLink) -> None:
    how = {"compute": "mixed", "cache_type": "f16", "defer": 0, "experts_used": None}
    shown_too = {"perplexity": 5.0, "reference_perplexity": 5.0, "num_tokens": 20_000, "text": "English"}
    figures = [
        {**how, **shown_too, "mean_kl": 0.000021, "top1": 0.9987},
        {**how, **shown_too, "cache_type": "q8_0", "mean_kl": 0.00034, "top1": 0.9921},
    ]
    save_figures(Path(os.environ["KTDESK_HOME"]), Path("/models/q.gguf"), figures)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "mean KL 0.00034 nats" in shown(pilot.app))
        await pilot.press("o")
        await until(pilot, lambda: pilot.app.screen.query("#experts"))
        pilot.app.screen.query_one("#cache_type", Select).value = "q8_0"
        pilot.app.screen.query_one("#experts", Input).value = "6"
        await settle(pilot)
        pilot.app.screen.query_one(".dialog").scroll_home(animate=False, immediate=True)

    compare(snap_compare, link, size, script)
