"""The places that watch a server: Monitor and Server."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driving import FakeLink, click, drive, make_app, shown, until
from machine_trees import FakeCard, FakeNvml
from textual.pilot import Pilot
from textual.widgets import Button, Input, Select

from ktdesk.card_watching import CardMoment, CardWatcher
from ktdesk.expert_placing import ExpertHeat, Place, better_placing
from ktdesk.model_link import LinkState
from ktdesk.options import changed_options
from ktdesk.quality_figures import save_figures
from ktdesk.server_records import ServerRecord
from ktdesk.tui.monitor.graph import Graph, bar_row
from ktdesk.tui.monitor.heat_map import Cell, heat_lines
from ktdesk.tui.monitor.placing_words import exchanges_content, marks_of
from ktdesk.tui.monitor.screen import facts_words
from ktdesk.tui.server.log_tail import LogTail
from ktdesk.tui.server.other_servers import OtherServers
from ktdesk.watching import AcceleratorMemory, Moment
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


def test_a_server_that_ended_says_why_in_its_place(link: FakeLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeWatcher, "answers", False)
    link.state = replace(link.state, stage="gone", reason="experts 999 are too many")

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "Ended     experts 999 are too many" in shown(pilot.app))

    drive(make_app(link), script, (120, 40))


def test_server_stops_and_starts_again(link: FakeLink) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: not pilot.app.screen.query_one("#stop", Button).disabled)
        await click(pilot, "#start", lambda: "anew /models/my-moe.gguf" in link.done)
        link.done.clear()
        await pilot.press("s")
        await until(pilot, lambda: "stop" in link.done)
        await until(pilot, lambda: "An answer to this app ends at once" in " ".join(shown(pilot.app).split()))
        await until(pilot, lambda: "my-moe: it was stopped here. Start again loads it." in shown(pilot.app))
        assert "○ my-moe was stopped" in shown(pilot.app)
        await click(pilot, "#start", lambda: "anew /models/my-moe.gguf" in link.done)

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
    assert heat_lines(heat, 3) == [[Cell(" ", True), Cell("█", False), Cell("░", False)]]
    assert heat_lines(heat, 3, {Place(0, 3): "A"})[0][1] == Cell("A", False, True)


def test_a_log_that_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.more() == ""
    path.write_text("one line\n")
    assert tail.more() == "one line\n"
    assert tail.more() == ""
    path.write_text("two\n")
    assert tail.more() == "two\n"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"ops_s": 1.2e12, "peak_share": 0.24, "is_on_tiles": True, "num_prefilling": 1},
            "Tiles (AMX)  24 % of 5.00 Top/s",
        ),
        ({"ops_s": 4e10, "peak_share": 0.5, "prompt_tok_s": 90.0}, "Vectors  50 % of 80.0 Gop/s"),
        ({"ops_s": 4e10, "prompt_tok_s": 90.0}, "Vectors  40.0 Gop/s, peak not measured"),
        ({"ops_s": 4e10, "peak_share": 0.5}, "Vectors  -"),
    ],
    ids=["tiles", "vectors", "not measured", "no prompt is read"],
)
def test_what_prompts_take_of_the_arithmetic_has_a_graph(
    link: FakeLink, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(FakeWatcher, "look", lambda self: replace(MOMENT, **more))

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: words in shown(pilot.app))
        share = 0.0 if words.endswith("-") else more.get("peak_share", 0.0)
        assert pilot.app.screen.query_one("#arithmetic", Graph)._values[-1] == share

    drive(make_app(link), script, (140, 40))


def test_rates_are_said_to_be_measured_until_there_are_two_looks(
    link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = replace(MOMENT, has_rates=False, tok_s=0.0, process_percent=0.0, node_percents={0: 0.0})
    monkeypatch.setattr(FakeWatcher, "look", lambda self: first)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "2 answering" in shown(pilot.app))
        text = shown(pilot.app)
        for words in ("Answers  measuring", "Prompts  measuring", "Cores  measuring", "Processes   measuring"):
            assert words in text

    drive(make_app(link), script, (120, 40))


@pytest.mark.parametrize(
    ("memory", "bar"),
    [
        (AcceleratorMemory(3 << 30, 1200, 1 << 30), f"{15 * '█'}{5 * '░'} 1,200 experts 3.0 GiB │ cache 1.0 GiB"),
        (AcceleratorMemory(0, 0, 1 << 30), f"{20 * '░'} 0 experts 0 B │ cache 1.0 GiB"),
        (AcceleratorMemory(0, 0, 0), f"{20 * '░'} 0 experts 0 B │ cache 0 B"),
        (AcceleratorMemory(1 << 20, 1, 0), f"{20 * '█'} 1 expert 1.0 MiB │ cache 0 B"),
    ],
)
def test_the_border_between_experts_and_cache_is_drawn(memory: AcceleratorMemory, bar: str) -> None:
    assert f"Accelerator {bar}\n" in facts_words(replace(MOMENT, accelerator=memory), 1.0)
    assert "Accelerator" not in facts_words(MOMENT, 1.0)


def test_exchanges_with_the_accelerator_are_listed_and_marked(link: FakeLink, monkeypatch: pytest.MonkeyPatch) -> None:
    resident = [[expert >= 2 for expert in range(4)], [False] * 4]
    heat = ExpertHeat([[6, 9, 3, 0], [1, 0, 0, 0]], resident, blocks=[1, 2])
    monkeypatch.setattr(FakeWatcher, "experts", lambda self: heat)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "blk.1:1 " in shown(pilot.app))
        text = " ".join(shown(pilot.app).split())
        assert "The 2 on the accelerator take 16 % of the hits. 2 exchanges would make that 79 %" in text
        assert "A blk.1:1 47.37 % a blk.1:3 0.00 %" in text
        assert "`ktdesk profile show use/my-moe`" in text
        assert "1 BAba" in text
        assert "Rows: layers. Columns: experts. · ░ ▒ ▓ █ a fifth to all of the row's most" in text

    drive(make_app(link), script, (120, 50))


def test_without_an_accelerator_it_is_said_what_a_card_would_take(
    link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWatcher, "experts", lambda self: ExpertHeat([[6, 9, 3, 2]], slot_bytes=1 << 30))

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f5")
        await until(pilot, lambda: "there is nothing to move" in shown(pilot.app))
        text = " ".join(shown(pilot.app).split())
        assert "2.0 GiB 2 of 4 experts 75 % of the hits 4.0 GiB 4 of 4 experts 100 %" in text

    drive(make_app(link), script, (120, 50))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"move_ms": 2.0},
            "by themselves while it answers, for 2 ms between two tokens at most (--move-ms), where one ",
        ),
        ({"move_ms": 0.0}, "(--move-ms 0). Start again (F6) places all of them so at once"),
        ({"move_ms": 0.0, "placement_strategy": "random"}, "`--placement-strategy frequency` places all of them so"),
    ],
)
def test_it_is_said_which_option_applies_the_exchanges(options: dict[str, Any], words: str) -> None:
    heat = ExpertHeat([[1, 2]], [[True, False]])
    placing = better_placing(heat)
    assert placing is not None
    assert words in exchanges_content(heat, placing, options, "x").plain
    placed = ExpertHeat([[1, 2]], [[False, True]])
    better = better_placing(placed)
    assert better is not None
    assert "none would lie better there" in exchanges_content(placed, better, options, "x").plain
    assert marks_of(better) == {}


def test_other_servers_are_listed_used_and_stopped(link: FakeLink) -> None:
    assert link.record is not None
    link.others = [replace(link.record, pid=number, port=number, model=f"other-{number}") for number in (2, 3)]

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "other-3" in shown(pilot.app))
        listed = pilot.app.screen.query_one(OtherServers)
        listed.focus()
        await until(pilot, lambda: listed.has_focus)
        await pilot.press("down", "delete")
        await until(pilot, lambda: "stop 3" in link.done)
        await until(pilot, lambda: len(listed.records) == 1)
        await pilot.press("enter")
        await until(pilot, lambda: "attach 2" in link.done)
        link.others.clear()
        await until(pilot, lambda: "Also running" not in shown(pilot.app))

    drive(make_app(link), script, (120, 40))


def test_options_that_change_answers_stand_beside_what_they_were_found_to_cost(link: FakeLink) -> None:
    how = {"compute": "mixed", "cache_type": "f16", "defer": 0, "experts_used": None}
    measured = {"perplexity": 5.0, "reference_perplexity": 5.0, "num_tokens": 9, "text": "t"}
    found: list[dict[str, Any]] = [
        {**how, **measured, "mean_kl": 0.0001, "top1": 0.999},
        {**how, **measured, "cache_type": "q8_0", "mean_kl": 0.02, "top1": 0.93},
    ]
    save_figures(Path(os.environ["KTDESK_HOME"]), Path("/models/my-moe.gguf"), found)

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await until(pilot, lambda: "--cache-type q8_0: mean KL 0.02 nats" in shown(pilot.app))
        await pilot.press("o")
        await until(pilot, lambda: pilot.app.screen.query("#cost-compute"))
        dialog = pilot.app.screen
        await until(pilot, lambda: "mean KL 0.0001 nats, same likeliest token 99.9%" in shown(pilot.app))
        dialog.query_one("#cache_type", Select).value = "q8_0"
        await until(pilot, lambda: "mean KL 0.02 nats" in shown(pilot.app))
        dialog.query_one("#experts", Input).value = "x"
        await until(pilot, lambda: "must be a whole number of at least 1" in shown(pilot.app))
        dialog.query_one("#experts", Input).value = "2"
        await until(pilot, lambda: "not measured" in shown(pilot.app))
        assert "ktdesk eval /models/my-moe.gguf --cache-type q8_0 --experts 2" in " ".join(shown(pilot.app).split())
        await click(pilot, "#load", lambda: "anew /models/my-moe.gguf" in link.done)
        assert changed_options(link.options) == {"cache_type": "q8_0", "experts": 2}

    drive(make_app(link), script, (120, 45))
