"""The guided setup: from the machine to a model that answers, with a fake hub, fake trials and a fake link."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from driving import WAIT_SECONDS, FakeLink, click, drive, make_app, shown, until
from loopback_hub import LoopbackHub
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Input
from trials import FakeTrials, measured_machine

from ktdesk.guided_setup import GuidedSetup, SetupChoice, unfinished_choices
from ktdesk.model_choices import ModelChoice, Outlook
from ktdesk.model_link import LinkState
from ktdesk.model_outlook import model_choices, outlook_or_problem
from ktdesk.planning import catalogue, machine_facts
from ktdesk.settings import DEMO_VARIABLE, Settings
from ktdesk.tui.setup.ledger_bars import MAX_PIECES, PIECES, bar_cells
from ktdesk.tui.setup.load_pane import LoadPane, Pace
from ktdesk.tui.setup.model_table import ModelTable
from ktdesk.tui.setup.own_words import own_words
from ktdesk.tui.setup.plan_pane import MeasureBox
from ktdesk.tui.setup.screen import SetupScreen
from ktdesk.tui.widgets.slider import Slider
from ktdesk_wizard.plan.wishes import Wishes

ModelNamed = Callable[[str], Path]


def home() -> Path:
    return Path(os.environ["KTDESK_HOME"])


def settings() -> Settings:
    return Settings(home=str(home()))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ktdesk.guided_setup.Trials", FakeTrials)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setattr("ktdesk.model_outlook.catalogue", lambda settings: {})
    measured_machine(home())


@pytest.fixture
def demo(tiny_model: ModelNamed, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tiny_model("qwen3moe")
    monkeypatch.setenv(DEMO_VARIABLE, str(path))
    return path


def setup_screen(pilot: Pilot[None]) -> SetupScreen:
    screen = pilot.app.screen
    assert isinstance(screen, SetupScreen)
    return screen


async def is_at(pilot: Pilot[None], step: str) -> None:
    await until(pilot, lambda: setup_screen(pilot).here == step)


async def choose(pilot: Pilot[None], name: str) -> None:
    """From the start of the app to the plan of a model."""
    await until(pilot, lambda: "Processor" in shown(pilot.app))
    await pilot.press("enter")
    await is_at(pilot, "models")
    pilot.app.screen.query_one("#search", Input).value = name
    pilot.app.screen.query_one("#search", Input).focus()
    await pilot.press("enter")
    await is_at(pilot, "plan")


async def become_ready(pilot: Pilot[None], link: FakeLink) -> None:
    await until(pilot, lambda: link.done)
    link.state = LinkState("ready", "m", "http://127.0.0.1:1", link.state.path, 100.0, context=512)
    await until(pilot, lambda: pilot.app.current_mode == "chat" and pilot.app.screen.query("Composer"))
    await until(pilot, lambda: "is ready" in shown(pilot.app))


def test_a_new_user_gets_from_the_start_to_chat_with_three_presses_of_enter(demo: Path) -> None:
    link = FakeLink()

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "not measured" in shown(pilot.app) or "fits" in shown(pilot.app))
        await pilot.press("enter", "enter")
        await until(pilot, lambda: link.done == [f"start {demo}"])
        await become_ready(pilot, link)

    drive(make_app(link, first_place=None), script)
    assert not unfinished_choices(settings())


def test_a_path_is_pasted_into_the_list_of_models(demo: Path) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await is_at(pilot, "models")
        table = pilot.app.screen.query_one(ModelTable)
        table.focus()
        table.post_message(Paste("/tmp/a b.gguf\n"))
        await until(pilot, lambda: pilot.app.screen.query_one("#search", Input).value == "/tmp/a b.gguf")

    drive(make_app(first_place=None), script)


def test_a_place_that_is_come_back_to_has_the_focus_on_its_own_step(demo: Path) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await is_at(pilot, "models")
        pilot.app.screen.set_focus(None)
        await pilot.press("f2")
        await until(pilot, lambda: pilot.app.current_mode == "chat")
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(pilot.app.focused, ModelTable))

    drive(make_app(first_place=None), script)


class EndlessMeasuring:
    """Of a machine that is never done with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        (home() / "measured.json").unlink()
        self.is_left = False
        monkeypatch.setattr("ktdesk_wizard.probe.measurement.measure", self._measure)

    def _measure(self, facts: object, check: Callable[[str], None], advance: Callable[[float], None]) -> None:
        try:
            while True:
                check("each type of weights")
                advance(0.4)
                time.sleep(0.01)
        finally:
            self.is_left = True


def test_measuring_is_shown_waited_for_and_done_without(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, measuring = FakeLink(), EndlessMeasuring(monkeypatch)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "measured: each type of weights, 40% in" in shown(pilot.app))
        await until(pilot, lambda: "What would help" in shown(pilot.app))
        assert "was not measured" not in shown(pilot.app)
        await choose(pilot, "demo")
        await until(pilot, lambda: "measured: each type of weights, 40% in" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "Enter is noted" in shown(pilot.app))
        assert not link.done
        await click(pilot, "#plan #unmeasured", lambda: link.done)
        await become_ready(pilot, link)
        await pilot.press("f3")
        await until(pilot, lambda: pilot.app.current_mode == "setup")
        setup_screen(pilot).go("machine")
        await until(pilot, lambda: "not measured: speeds are " in shown(pilot.app) and measuring.is_left)
        assert "Measure again" in shown(pilot.app)
        assert "was not measured" in shown(pilot.app)

    drive(make_app(link, first_place="setup"), script)
    assert not (home() / "measured.json").exists()


def test_a_name_that_no_hub_knows_is_refused_while_the_machine_is_measured(
    hub: LoopbackHub, tiny_model: ModelNamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    EndlessMeasuring(monkeypatch)

    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "owner/Absent-GGUF")
        await pilot.press("escape")
        await is_at(pilot, "models")
        await until(pilot, lambda: "Another model" in shown(pilot.app))
        assert "owner/Absent-GGUF" in shown(pilot.app).partition("Another model")[0].splitlines()[-1]
        assert isinstance(pilot.app.focused, ModelTable), "who looks through the models goes on with it"
        await click(pilot, "FailureBar Button.-models", lambda: not pilot.app.screen.query_one("#search", Input).value)

    drive(make_app(first_place="setup"), script, (140, 40))


def test_what_can_be_no_model_is_refused_where_it_is_typed(demo: Path) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "● fits" in shown(pilot.app))
        search = pilot.app.screen.query_one("#search", Input)
        search.focus()
        for text, told in (
            ("nonsense", "Nothing here is called so"),
            (str(demo.parent / "no.gguf"), "There is no such file"),
            (str(demo.parent), "This is a folder"),
        ):
            search.value = text
            await until(pilot, lambda told=told: told in shown(pilot.app))  # type: ignore[misc]
            await pilot.press("enter")
            assert setup_screen(pilot).here == "models"
        search.value = str(demo)
        await until(pilot, lambda: "A file of this disk" in shown(pilot.app))
        await pilot.press("enter")
        await is_at(pilot, "plan")

    drive(make_app(first_place="setup"), script)


def test_a_long_list_has_room_for_its_last_column_and_is_gone_through_by_keys(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [ModelChoice("catalogue", f"m{number}", f"A name of some length, {number}", None) for number in range(40)]
    judged = Outlook("does not fit", "", "Q8_0", 1023 << 30, 1 << 40, 4096, 1234.0, 2345.0)
    monkeypatch.setattr("ktdesk.tui.setup.choosing._listed", lambda settings: ([], models))
    is_shown = threading.Event()

    def judge(*_: object) -> Outlook:
        is_shown.wait(WAIT_SECONDS)
        return judged

    monkeypatch.setattr("ktdesk.model_outlook.outlook_or_problem", judge)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: models[1].title in shown(pilot.app))
        is_shown.set()
        await until(pilot, lambda: shown(pilot.app).count("1,234 to 2,345") > 9)
        table = pilot.app.screen.query_one(ModelTable)
        assert table.virtual_size.width <= table.scrollable_content_region.width
        for key, rows in (("end", [39]), ("home", [0]), ("pagedown", range(8, 20)), ("pageup", [0])):
            await pilot.press(key)
            await until(pilot, lambda rows=rows: table.cursor_row in rows)  # type: ignore[misc]

    drive(make_app(first_place="setup"), script)


def test_the_smallest_terminal_has_room_for_models(demo: Path) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "SmolLM2" in shown(pilot.app))

    drive(make_app(first_place="setup"), script, (40, 10))


def test_measuring_it_first_is_turned_by_space_and_by_enter(demo: Path) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "demo")
        box = pilot.app.screen.query_one(MeasureBox)
        box.focus()
        await until(pilot, lambda: box.has_focus)
        for key, sign in (("space", "☑"), ("enter", "☐")):
            await until(pilot, lambda: not box.has_class("-active"))
            await pilot.press(key)
            await until(pilot, lambda sign=sign: f"{sign} measure it first" in shown(pilot.app))  # type: ignore[misc]

    drive(make_app(first_place="setup"), script)


def test_a_demo_model_whose_making_was_left_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEMO_VARIABLE, raising=False)
    folder = settings().models_folder / "demo"
    folder.mkdir(parents=True)
    assert not unfinished_choices(settings())
    (folder / ".lock").touch()
    assert unfinished_choices(settings()) == [SetupChoice("demo", is_confirmed=True)]

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Go on with the demo model" in shown(pilot.app))

    drive(make_app(first_place="setup"), script)


def test_who_had_a_model_before_begins_in_chat(demo: Path) -> None:
    (home() / "app.yaml").write_text(f"last_model: {demo}\n")

    async def script(pilot: Pilot[None]) -> None:
        assert pilot.app.current_mode == "chat"

    drive(make_app(first_place=None), script)


def test_the_controls_turn_the_plan_and_what_they_say_is_set_up(demo: Path) -> None:
    link = FakeLink()

    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "demo")
        context = pilot.app.screen.query_one("#context", Slider)
        await until(pilot, lambda: len(context._stops) > 1 and pilot.app.focused is not None)
        context.focus()
        await until(pilot, lambda: context.has_focus)
        await pilot.press("end")
        await until(pilot, lambda: context.value == 512)
        await click(pilot, "#accept", lambda: link.done)
        guided = setup_screen(pilot)._guided
        assert guided is not None
        assert guided.choice.wishes == Wishes(context=512)
        await become_ready(pilot, link)

    drive(make_app(link, first_place="setup"), script, (140, 40))


def test_what_does_not_fit_is_told_and_done_all_the_same(demo: Path) -> None:
    link = FakeLink()

    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "demo")
        screen = setup_screen(pilot)
        await until(pilot, lambda: screen._guided is not None and screen._guided.stage == "asking")
        screen._begin(SetupChoice("demo", wishes=Wishes(max_memory_bytes=1 << 20)), "demo")
        await until(pilot, lambda: "does not fit" in shown(pilot.app))
        await click(pilot, "FailureBar Button.-insist", lambda: link.done)
        await become_ready(pilot, link)

    drive(make_app(link, first_place="setup"), script, (140, 40))


def test_a_repository_that_nobody_knows_is_told_and_tried_again(hub: LoopbackHub, tiny_model: ModelNamed) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "owner/Tiny-GGUF")
        await until(pilot, lambda: "Try again" in shown(pilot.app))
        hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
        await click(pilot, "FailureBar Button.-retry", lambda: "memory?" in shown(pilot.app))

    drive(make_app(first_place="setup"), script, (140, 40))


def test_a_download_is_paused_goes_on_and_is_measured_then(hub: LoopbackHub, tiny_model: ModelNamed) -> None:
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
    link = FakeLink()

    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "owner/Tiny-GGUF:F32")
        screen = setup_screen(pilot)
        await until(pilot, lambda: screen._guided is not None and screen._guided.stage == "asking")
        hub.bytes_s = 20_000.0
        await click(pilot, "#measured", lambda: "☑" in shown(pilot.app))
        await click(pilot, "#accept", lambda: screen.here == "download")
        await until(pilot, lambda: "tiny-F32.gguf" in shown(pilot.app))
        await click(pilot, "#pause", lambda: "paused" in shown(pilot.app))
        assert unfinished_choices(settings())[0].named == "owner/Tiny-GGUF:F32"
        hub.bytes_s = None
        await click(pilot, "#pause", lambda: link.done)
        await until(pilot, lambda: "it answered 'Paris'" in shown(pilot.app))
        await become_ready(pilot, link)

    drive(make_app(link, first_place="setup"), script, (140, 40))
    assert not unfinished_choices(settings())


def test_after_a_kill_the_next_start_offers_to_go_on(hub: LoopbackHub, tiny_model: ModelNamed) -> None:
    hub.add("owner/Tiny-GGUF", "tiny-F32.gguf", tiny_model("qwen3moe").read_bytes())
    killed = GuidedSetup(SetupChoice("owner/Tiny-GGUF:F32"), settings())
    killed.begin()
    while killed.stage != "asking":
        assert killed.is_alive, killed.failure
        killed.wait(0.01)
    hub.bytes_s = 20_000.0
    killed.confirm(is_measured=False)
    while killed.step("pull").state != "running":
        assert killed.is_alive, killed.failure
        killed.wait(0.01)
    killed.stop()
    killed.join()
    hub.bytes_s = None
    link = FakeLink()

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Go on with owner/Tiny-GGUF:F32" in shown(pilot.app))
        await click(pilot, "#resume", lambda: link.done)
        await become_ready(pilot, link)

    drive(make_app(link, first_place="setup"), script, (140, 40))


def test_a_model_that_the_server_cannot_load_is_told_with_next_steps_and_leaving_costs_nothing(demo: Path) -> None:
    link = FakeLink()

    async def script(pilot: Pilot[None]) -> None:
        await choose(pilot, "demo")
        await click(pilot, "#accept", lambda: link.done)
        reason = "it needs 9 GiB (--no-memory-guard loads it all the same)"
        link.state = LinkState("failed", "m", "", str(demo), reason=reason)
        await until(pilot, lambda: "Load it all the same" in shown(pilot.app))
        await pilot.press("f2")
        await until(pilot, lambda: pilot.app.current_mode == "chat")
        await pilot.press("f3")
        await until(pilot, lambda: "it needs 9 GiB" in shown(pilot.app))
        await click(pilot, "FailureBar Button.-unguarded", lambda: len(link.done) == 2)
        await until(pilot, lambda: "the server starts" in shown(pilot.app) or "weights are" in shown(pilot.app))
        await click(pilot, "#cancel", lambda: "leave" in link.done)
        await is_at(pilot, "plan")

    drive(make_app(link, first_place="setup"), script, (140, 40))


def test_search_and_filter_leave_what_is_meant_and_escape_goes_back(demo: Path, tiny_model: ModelNamed) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Processor" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "● fits" in shown(pilot.app))
        await pilot.press(*"zz")
        await until(pilot, lambda: "Nothing here is called so" in shown(pilot.app))
        await pilot.press("backspace", "backspace", "tab", "right")
        await until(pilot, lambda: "what fits here" in shown(pilot.app) and "● fits" in shown(pilot.app))
        await pilot.press("escape")
        await is_at(pilot, "machine")

    drive(make_app(first_place="setup"), script)


def test_every_model_is_listed_and_judged(demo: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: ModelNamed) -> None:
    monkeypatch.setattr("ktdesk.model_outlook.catalogue", catalogue)
    folder = settings().models_folder / "mine"
    folder.mkdir(parents=True)
    (folder / "whole.gguf").write_bytes(tiny_model("llama-moe").read_bytes())
    (folder / "broken.gguf").write_text("no model")
    listed = {choice.title: choice for choice in model_choices(settings())}
    facts = machine_facts(settings())
    assert isinstance(outlook_or_problem(listed["mine/whole"], facts, settings()), Outlook)
    assert "mine/broken" in str(outlook_or_problem(listed["mine/broken"], facts, settings())).replace(".gguf", "")
    assert next(iter(listed.values())).kind == "demo"
    assert listed["OLMoE 1B 7B"].kind == "catalogue"


def test_pieces_of_a_bar_end_where_they_belong() -> None:
    assert bar_cells([1, 1, 1], 3, 10) == [3, 4, 3]
    assert bar_cells([5, 20], 10, 10) == [5, 5]


def test_at_a_hundred_percent_no_time_is_left_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "remaining_seconds", lambda self, share: 100 * (1 - share))
    loading = LinkState("loading", "m", "http://127.0.0.1:1", "/m.gguf")

    async def script(pilot: Pilot[None]) -> None:
        setup_screen(pilot).go("load")
        pane = pilot.app.screen.query_one(LoadPane)
        pane.show_link(replace(loading, percent=90.0))
        await until(pilot, lambda: " 90%" in shown(pilot.app) and "10 s left" in shown(pilot.app))
        pane.show_link(replace(loading, percent=99.7))
        await until(pilot, lambda: "100%" in shown(pilot.app))
        assert " s left" not in shown(pilot.app)

    drive(make_app(first_place="setup"), script)


def test_pieces_of_a_bar_are_told_apart_without_colours() -> None:
    assert len({sign for sign, _ in PIECES}) == MAX_PIECES


@pytest.mark.parametrize(
    ("advice", "own"),
    [
        (
            "it would fit with --context 4096 --cache-type q8_0",
            "it would fit with Context at 4,096 tokens and Cache at q8_0",
        ),
        ("it would fit with --max-memory 9.5", "it would fit with Memory cap at 9.5 GiB"),
        ("it needs 9 GiB; --force goes on all the same", "it needs 9 GiB"),
        ("not measured: `ktdesk probe --measure` takes them", "not measured: “Measure again” under Machine takes them"),
        ("--device cpu leaves it out", "Devices at cpu leaves it out"),
        ("name another folder with --home DIR", "name another folder with --home DIR"),
    ],
)
def test_advice_names_the_control_of_the_app(advice: str, own: str) -> None:
    assert own_words(advice) == own


def test_the_remaining_time_is_that_of_the_last_moments() -> None:
    clock = iter([0.0, 2.0, 12.0, 13.0])
    pace = Pace(lambda: next(clock))
    assert [pace.remaining_seconds(share) for share in (0.0, 0.1, 0.5, 0.2)] == [None, 18.0, 12.5, None]
