"""Buttons of a step and of a failure: all of them whole on the screen, however narrow it is."""

from __future__ import annotations

import pytest
from driving import FakeLink, drive, make_app, shown, until
from textual.pilot import Pilot
from textual.widgets import Button

from ktdesk.model_link import LinkState
from ktdesk.tui.setup.load_pane import LoadPane
from ktdesk.tui.setup.machine_pane import MachinePane
from ktdesk.tui.setup.screen import SetupScreen
from ktdesk.tui.widgets.failure_bar import FailureBar
from ktdesk_wizard.setup.step import Advance, Step

SIZES = pytest.mark.parametrize(
    "size", [(40, 12), (60, 20), (80, 24), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}"
)
READY = LinkState("ready", "Qwen3-30B-A3B", "http://127.0.0.1:1", "/models/q.gguf", 100.0, context=32_768)
LONG = "The disk is full: 3.4 GiB more are needed in /models. Make room, or name another folder. " * 4


@pytest.fixture(autouse=True)
def _a_machine_that_nobody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for job in ("_look_at_machine", "_list_models"):
        monkeypatch.setattr(SetupScreen, job, lambda self: None)


def labels_in_full(pilot: Pilot[None]) -> bool:
    """Of every button that is shown: its words are on one line of the screen, within it."""
    lines = shown(pilot.app).split("\n")
    buttons = [button for button in pilot.app.screen.query(Button) if button.is_on_screen and button.region]
    return bool(buttons) and all(any(str(button.label) in line for line in lines) for button in buttons)


@SIZES
def test_no_button_of_the_setup_is_cut(size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        screen.query_one(MachinePane).offer("the demo model")
        await until(pilot, lambda: "Go on with" in shown(pilot.app) and labels_in_full(pilot))
        screen.go("load")
        steps = [Step("prove", "running", Advance(4, 9, "samples", "decode"))]
        screen.query_one(LoadPane).show_steps("A model", steps)
        await until(pilot, lambda: "Chat now, without measuring" in shown(pilot.app) and labels_in_full(pilot))

    drive(make_app(FakeLink(), first_place="setup"), script, size)


@SIZES
def test_a_failure_shows_its_beginning_and_every_step_and_scrolls_to_its_end(size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "is ready. Write below" in shown(pilot.app))
        bar = pilot.app.screen.query_one(FailureBar)
        bar.tell(f"{LONG}The last word.", again="Ask again", options="Chat options", other="Another model")
        words = ("The disk", "Ask again", "Chat options", "Another model")
        await until(pilot, lambda: all(each in shown(pilot.app) for each in words))
        bar.query(Button).first().focus()
        await until(pilot, lambda: bar.query(Button).first().has_focus)
        for _ in range(12):
            await pilot.press("down")
        await until(pilot, lambda: "last word." in shown(pilot.app) and "Another model" in shown(pilot.app))

    drive(make_app(FakeLink(READY)), script, size)


def test_a_notice_pushes_the_place_down_and_covers_none_of_it() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f3")
        await until(pilot, lambda: "1 Machine" in shown(pilot.app))
        pilot.app.notify("A word about it", timeout=60)
        await until(pilot, lambda: "A word about it" in shown(pilot.app))
        lines = shown(pilot.app).split("\n")
        notice = next(number for number, line in enumerate(lines) if "A word about it" in line)
        assert "F3" in lines[0]
        await until(pilot, lambda: "1 Machine" in shown(pilot.app).split("\n")[notice + 1])

    drive(make_app(FakeLink(READY)), script)
