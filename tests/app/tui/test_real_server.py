"""The app on a real server with a tiny model: attached to, started, killed, started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import click, drive, make_app, shown, until
from textual.pilot import Pilot
from trials import measured_machine

from ktdesk.chat_stream import AnswerEnd, ChatStream, Delta, num_prompt_tokens
from ktdesk.errors import AnswerRefusedError, ServerGoneError
from ktdesk.model_link import LinkState, ModelLink
from ktdesk.options import EngineOptions
from ktdesk.server_records import running_servers, stop_server
from ktdesk.settings import DEMO_VARIABLE, Settings
from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.chat.screen import ChatScreen

OPTIONS = EngineOptions(threads=1, compute="int8", context=20_000)


@pytest.fixture(autouse=True)
def _stop_all() -> Iterator[None]:
    yield
    for record in running_servers(settings()):
        assert stop_server(record, 30)


def settings() -> Settings:
    return Settings(home=os.environ["KTDESK_HOME"])


def wait(link: ModelLink, stage: str) -> LinkState:
    import time

    deadline = time.monotonic() + 60
    while link.look().stage != stage:
        assert time.monotonic() < deadline, link.state
        time.sleep(0.05)
    return link.state


async def say(pilot: Pilot[None], text: str) -> None:
    composer = pilot.app.screen.query_one(Composer)
    composer.text = text
    await pilot.press("enter")


def test_a_model_is_started_asked_lost_and_started_again(talker: Path) -> None:
    link = ModelLink(settings(), keep_alive_seconds=60)
    sampling = {"temperature": 0.0, "max_tokens": 20.0}

    async def script(pilot: Pilot[None]) -> None:
        app = pilot.app
        app.change_link(lambda link: link.start(talker, OPTIONS))  # type: ignore[attr-defined]
        await until(pilot, lambda: "● talker" in shown(app))
        screen = app.screen
        assert isinstance(screen, ChatScreen)
        screen.session.draft_sampling = {name: int(value) for name, value in sampling.items()}
        await say(pilot, "the cat")
        await until(pilot, lambda: "20 tokens · first after" in shown(app))
        assert f"of {OPTIONS.context:,}" in shown(app)
        screen.session.describe("", {"temperature": 0}, "")
        record = link.record
        assert record is not None
        await say(pilot, "go on")
        await until(pilot, lambda: "tokens; Escape stops" in shown(app))
        os.kill(record.pid, signal.SIGKILL)
        await until(pilot, lambda: "Start it again" in shown(app))
        assert "the server ended before the answer did" in shown(app)
        assert len(screen.session.conversation.path[-1].content) > 0  # type: ignore[union-attr]
        screen.session.describe("", sampling_of_whole_numbers(sampling), "")
        await click(pilot, "FailureBar Button", lambda: "Start it again" not in shown(app))
        await until(pilot, lambda: "20 tokens · first after" in shown(app) and "2/2" in shown(app))

    drive(make_app(link), script, (90, 40))


def test_a_new_user_gets_from_nothing_to_a_streamed_answer(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real planner, rehearsal and server; only measuring the machine is left out."""
    monkeypatch.setenv(DEMO_VARIABLE, str(talker))
    monkeypatch.setattr("ktdesk.model_outlook.catalogue", lambda settings: {})
    measured_machine(settings().data_folder)
    link = ModelLink(settings(), keep_alive_seconds=60)

    async def script(pilot: Pilot[None]) -> None:
        app = pilot.app
        await until(pilot, lambda: "Processor" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: "● fits" in shown(app))
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.current_mode == "chat" and "is ready" in shown(app))
        await say(pilot, "the cat")
        await until(pilot, lambda: "tokens; Escape stops" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: "stopped" in shown(app))

    drive(make_app(link, first_place=None), script)


def sampling_of_whole_numbers(sampling: dict[str, float]) -> dict[str, float]:
    return {name: int(value) for name, value in sampling.items()}


def test_a_link_tells_how_the_server_is_from_start_to_end(talker: Path, tmp_path: Path) -> None:
    link = ModelLink(settings(), keep_alive_seconds=60)
    assert link.attach_if_any().stage == "none"
    link.start(talker, OPTIONS)
    ready = wait(link, "ready")
    assert (ready.model, ready.context, ready.path) == ("talker", 20_000, str(talker))
    other = ModelLink(settings())
    assert other.attach_if_any().stage == "none"  # it has options that somebody gave: it is for them
    assert other.attach(other.servers()[0]).url == ready.url
    assert other.start(talker, OPTIONS).url == ready.url  # or for who wants the same
    assert len(other.servers()) == 1

    body = {"model": "talker", "messages": [{"role": "user", "content": "the cat"}], "temperature": 0, "max_tokens": 5}
    events = list(ChatStream(ready.url, None, body))
    end = events[-1]
    assert isinstance(end, AnswerEnd)
    assert (end.finish_reason, end.num_answer_tokens) == ("length", 5)
    assert end.prefill_seconds > 0
    assert len("".join(event.content for event in events[:-1] if isinstance(event, Delta))) == 5
    assert num_prompt_tokens(ready.url, None, body["messages"]) == end.num_prompt_tokens  # type: ignore[arg-type]
    with pytest.raises(AnswerRefusedError, match="context"):
        list(ChatStream(ready.url, None, {**body, "messages": [{"role": "user", "content": "x" * 30_000}]}))

    stopped = link.stop_server()
    assert (stopped.stage, stopped.reason, stopped.was_told) == ("gone", "it was stopped here", True)
    assert link.look() == stopped
    seen = other.look()
    assert (seen.stage, seen.was_told) == ("gone", True)
    assert seen.reason == "it was told to stop: by the app, `ktdesk stop` or another program"
    with pytest.raises(ServerGoneError):
        list(ChatStream(ready.url, None, body))


def test_a_model_file_that_is_gone_or_broken_is_told(tmp_path: Path) -> None:
    link = ModelLink(settings())
    state = link.start(tmp_path / "gone.gguf")
    assert state.stage == "failed"
    assert "gone.gguf" in state.reason
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 10)
    assert "broken.gguf" in link.start(broken).reason
    assert link.restart().stage == "failed"
    assert link.leave() == LinkState()
