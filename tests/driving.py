"""Drives the terminal app in a test: keys in, what is shown out. Its link is a fake unless a test gives another."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from textual.pilot import Pilot

from ktdesk.model_link import STOPPED_HERE, LinkState
from ktdesk.options import EngineOptions
from ktdesk.server_records import ServerRecord
from ktdesk.settings import Settings
from ktdesk.tui.app import KtdeskApp

Script = Callable[[Pilot[None]], Awaitable[None]]
WAIT_SECONDS = 20.0
NO_MODEL = LinkState()


class FakeLink:
    """A link whose state is set by the test."""

    def __init__(self, state: LinkState = NO_MODEL) -> None:
        self.state = state
        self.api_key: str | None = None
        self.options = EngineOptions()
        self.record: ServerRecord | None = None
        self.others: list[ServerRecord] = []
        """That run, too."""
        self.done: list[str] = []
        """What was asked of it."""

    def servers(self) -> list[ServerRecord]:
        return [*self.others, *([] if self.record is None else [self.record])]

    def attach_if_any(self) -> LinkState:
        return self.state

    def attach(self, record: ServerRecord) -> LinkState:
        self.done.append(f"attach {record.port}")
        return self.state

    def look(self) -> LinkState:
        return self.state

    def start(self, path: Path, options: EngineOptions | None = None, *, guards_memory: bool = True) -> LinkState:
        self.done.append(f"start {path}")
        self.options = options or EngineOptions()
        self.state = LinkState("loading", path.stem, "http://127.0.0.1:1", str(path))
        return self.state

    def restart(self) -> LinkState:
        self.done.append("restart")
        return self.state

    def leave(self) -> LinkState:
        self.done.append("leave")
        self.state, self.record = NO_MODEL, None
        return self.state

    def stop_server(self, limit_seconds: float = 20.0) -> LinkState:
        self.done.append("stop")
        self.record = None
        self.state = replace(self.state, stage="gone", reason=STOPPED_HERE, was_told=True)
        return self.state

    def stop_other(self, record: ServerRecord) -> bool:
        self.done.append(f"stop {record.port}")
        self.others.remove(record)
        return True

    def start_anew(self, path: Path, options: EngineOptions) -> LinkState:
        self.done.append(f"anew {path}")
        self.options = options
        return self.state


def make_app(link: object | None = None, home: str | None = None, first_place: str | None = "chat") -> KtdeskApp:
    settings = Settings(home=home or os.environ["KTDESK_HOME"])
    given = FakeLink() if link is None else link
    return KtdeskApp(settings, lambda _: given, first_place)  # type: ignore[arg-type, return-value]


def drive(app: KtdeskApp, script: Script, size: tuple[int, int] = (80, 24)) -> None:
    """Runs the app without a terminal and the script beside it. What ends the app by mistake fails the test."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            await script(pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], is_so: Callable[[], object]) -> None:
    for _ in range(round(WAIT_SECONDS / 0.02)):
        if is_so():
            return
        await pilot.pause(0.02)
    raise AssertionError("it does not come to be\n" + shown(pilot.app))


async def click(pilot: Pilot[None], selector: str, is_so: Callable[[], object]) -> None:
    """Clicks until it is so: a widget that moves while the pilot presses is missed, as it is by a person, who then
    clicks again."""
    for _ in range(round(WAIT_SECONDS)):
        for widget in [found for found in pilot.app.screen.query(selector) if found.region]:
            await pilot.click(widget)
        for _ in range(50):
            if is_so():
                return
            await pilot.pause(0.02)
    raise AssertionError(f"a click on {selector} does not do it\n" + shown(pilot.app))


def shown(app: object) -> str:
    """The text on the screen."""
    screen = app.screen  # type: ignore[attr-defined]
    return "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())
