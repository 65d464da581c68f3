"""The places that watch a server: Monitor and Server."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import FakeLink, click, drive, make_app, shown, until
from machine_trees import FakeCard, FakeNvml
from textual.pilot import Pilot
from textual.widgets import Button

from ktdesk.card_watching import CardMoment, CardWatcher
from ktdesk.model_link import LinkState
from ktdesk.server_records import ServerRecord
from ktdesk.tui.monitor.graph import bar_row
from ktdesk.tui.monitor.heat_map import heat_lines
from ktdesk.tui.server.screen import LogTail
from ktdesk.watching import ExpertHeat, Moment
from ktdesk_wizard.probe.nvml import Nvml

MOMENT = Moment(
    tok_s=43.7, num_decoding=2, num_waiting=1, num_open_requests=3, read_bytes_s=16.9e9, bandwidth_share=0.84,
    node_percents={0: 97.0}, process_percent=190, resident_bytes=17 << 30, available_bytes=40 << 30,
    num_hits={"pool": 0, "ram": 30, "disk": 10}, num_missed=10, ram_bytes=1 << 30, ram_limit_bytes=4 << 30,
)  # fmt: skip
HEAT = ExpertHeat([[0, 9, 3, 0], [5, 5, 5, 5]], None)


class FakeWatcher:
    """Always at the same moment."""

    answers = True

    def __init__(self, record: ServerRecord, api_key: str | None = None) -> None:
        self.record = record

    def look(self) -> Moment | None:
        return MOMENT if self.answers else None

    def experts(self) -> ExpertHeat:
        return HEAT


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    for module in ("monitor", "server"):
        monkeypatch.setattr(f"ktdesk.tui.{module}.screen.Watcher", FakeWatcher)
    log = tmp_path / "server.log"
    log.write_text("it listens\x1b[2J\n")
    made = FakeLink(LinkState("ready", "my-moe", "http://127.0.0.1:8080", "/models/my-moe.gguf", 100.0, context=4096))
    made.record = ServerRecord(
        1, 0.0, "http://127.0.0.1:8080", 8080, "my-moe", "/models/my-moe.gguf", str(log), False, {}
    )
    return made


def test_monitor_says_what_limits_and_draws_it(link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "memory-bound: 84 % of 20.1 GB/s" in shown(pilot.app))
        await until(pilot, lambda: "most used fifth" in shown(pilot.app))
        text = shown(pilot.app)
        for words in ("43.7 tok/s", "97 % busy", "2 answering", "80 % of 50 pages", "17.0 GiB", "this app"):
            assert words in text

    drive(make_app(link), script, (120, 40))


def test_monitor_without_a_model_says_so() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "there is nothing to watch" in shown(pilot.app))

    drive(make_app(), script)


def test_a_server_that_does_not_answer_is_told(link: FakeLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeWatcher, "answers", False)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "The server does not answer" in shown(pilot.app))
        assert "43.7" not in shown(pilot.app)

    drive(make_app(link), script)


def test_server_shows_address_log_and_lines_for_clients(link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "it listens" in shown(pilot.app))
        text = shown(pilot.app)
        for words in ("http://127.0.0.1:8080", "none is needed", "3 connections", "OpenAI("):
            assert words in text
        assert "\x1b" not in text
        await pilot.press("n")
        await until(pilot, lambda: "Anthropic(" in shown(pilot.app))

    drive(make_app(link), script, (120, 40))


def test_server_stops_and_starts_again(link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: not pilot.app.screen.query_one("#stop", Button).disabled)
        await click(pilot, "#start", lambda: "restart" in link.done)
        await pilot.press("s")
        await until(pilot, lambda: "stop" in link.done)
        await until(pilot, lambda: "not linked to a server" in shown(pilot.app))
        await click(pilot, "#start", lambda: "start /models/my-moe.gguf" in link.done)

    drive(make_app(link), script, (120, 40))


def test_cards_are_asked_by_the_reader_of_the_probe_and_what_they_do_not_say_is_not_known() -> None:
    cards = [FakeCard("a", 48 << 30, 17 << 30, busy=63, pcie=(9_000, 2_000)), FakeCard("b", 0, 0)]
    watcher = CardWatcher(lambda: Nvml(FakeNvml(cards)))
    first, second = watcher.look()
    assert first == CardMoment(0, 63.0, 31 << 30, 48 << 30, 11e6)
    assert second == CardMoment(1, None, None, None, None)
    watcher.close()
    assert watcher.look() == ()
    assert CardWatcher(lambda: Nvml(FakeNvml(failure="no driver"))).look() == ()


def test_monitor_has_graphs_of_the_cards_that_are_there(link: FakeLink, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([FakeCard("a", 48 << 30, 17 << 30, busy=63), FakeCard("b", 0, 0)])
    monkeypatch.setattr("ktdesk.tui.monitor.screen.CardWatcher", lambda: CardWatcher(lambda: Nvml(nvml)))

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "63 % busy" in shown(pilot.app))
        assert "31.0 GiB of 48.0 GiB" in shown(pilot.app)
        assert "GPU 1 PCIe  not told" in shown(pilot.app)

    drive(make_app(link), script, (140, 40))


def test_bars_are_as_high_as_their_share_of_the_ceiling() -> None:
    assert bar_row([0, 0.5, 1, 2], 1.0, 0, 1) == " ▄██"
    assert bar_row([0.5, 0.75, 1], 1.0, 1, 2) == " ▄█"


def test_experts_side_by_side_share_a_place_where_there_is_no_room() -> None:
    heat = ExpertHeat([[0, 0, 4, 4, 2, 2]], [[False, True, False, False, False, False]])
    assert heat_lines(heat, 3) == [[(" ", True), ("█", False), ("░", False)]]


def test_a_log_that_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.more() == ""
    path.write_text("one line\n")
    assert tail.more() == "one line\n"
    assert tail.more() == ""
    path.write_text("two\n")
    assert tail.more() == "two\n"
