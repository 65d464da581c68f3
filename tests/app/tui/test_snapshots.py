"""Pictures of places and states, looked at by eye before they were accepted (`pytest --snapshot-update`)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from driving import FakeLink, shown, until
from fake_chat_server import Script, content, fake_chat_server, reasoning
from pictures import SIZES, Compare, compare, settle
from textual.pilot import Pilot

from ktdesk.conversations.messages import Attachment, Conversation, Measured, Message
from ktdesk.conversations.store import FILE, ConversationStore
from ktdesk.model_link import LinkState
from ktdesk.tui.chat.screen import ChatScreen
from ktdesk.ui_benchmark.scripted_server import PASSAGE

READY = LinkState("ready", "Qwen3-30B-A3B", "http://127.0.0.1:1", "/models/q.gguf", 100.0, context=32_768)
LOADING = LinkState("loading", "Qwen3-30B-A3B", "http://127.0.0.1:1", "/models/q.gguf", 43.0)
MEASURED = Measured(1_203, 311, 900, 0.42, 0.37, 7.1)
THOUGHT = "The user wants to know what limits decoding. Memory does: every active weight is read once a token."


@pytest.fixture(autouse=True)
def _a_fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktdesk.tui.chat.conversation_list.time.localtime", time.gmtime)


def keep_conversation() -> None:
    store = ConversationStore(Path(os.environ["KTDESK_HOME"]) / FILE)
    question = Message(
        1, None, "user", "What limits decoding here?", 1.0, attachments=(Attachment("probe.txt", "x" * 2048),)
    )
    answers = [
        Message(
            number,
            1,
            "assistant",
            PASSAGE.strip(),
            2.0,
            THOUGHT,
            4.2,
            model="Qwen3-30B-A3B",
            finish_reason="stop",
            measured=MEASURED,
        )
        for number in (2, 3)
    ]
    messages = {message.message_id: message for message in (question, *answers)}
    day = 86_400.0
    store.insert(Conversation(0, "Rivers of the north", 1.0, 300 * day, tip_id=1, messages={1: question}))
    store.insert(Conversation(0, "What limits decoding", 1.0, 400 * day, tip_id=3, tags=("speed",), messages=messages))
    store.close()


async def open_conversation(pilot: Pilot[None], *, with_list: bool) -> None:
    await pilot.press("ctrl+l", "enter")
    await until(pilot, lambda: "3.2" in shown(pilot.app) or "43.7 tok/s" in shown(pilot.app))
    screen = pilot.app.screen
    assert isinstance(screen, ChatScreen)
    screen.query_one("ConversationList").set_class(with_list, "-shown")
    await pilot.pause(0.1)


@SIZES
def test_chat_with_an_answer(snap_compare: Compare, size: tuple[int, int]) -> None:
    keep_conversation()

    async def script(pilot: Pilot[None]) -> None:
        await open_conversation(pilot, with_list=size[0] > 100)

    compare(snap_compare, FakeLink(READY), size, script)


@SIZES
def test_chat_with_a_message_chosen_and_reasoning_unfolded(snap_compare: Compare, size: tuple[int, int]) -> None:
    keep_conversation()

    async def script(pilot: Pilot[None]) -> None:
        await open_conversation(pilot, with_list=False)
        await pilot.press("escape", "space", "home")

    compare(snap_compare, FakeLink(READY), size, script)


@SIZES
def test_chat_before_a_model(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press(*"Hi")

    compare(snap_compare, FakeLink(), size, script)


def test_chat_while_the_model_loads(snap_compare: Compare) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press(*"Hi", "enter")

    compare(snap_compare, FakeLink(LOADING), (80, 24), script)


@SIZES
def test_chat_after_the_server_died(
    snap_compare: Compare, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ktdesk.tui.chat.entry.measured_words", lambda measured: "")
    monkeypatch.setattr("ktdesk.tui.chat.entry.duration", lambda seconds: "0.0 s")

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press(*"Hi", "enter")
        await until(pilot, lambda: "Start it again" in shown(pilot.app))
        pilot.app.screen.query_one("ConversationList").remove_class("-shown")  # it has the time of day

    deltas = [*reasoning("It greets. "), *content("Hello, and", 10)]
    with fake_chat_server(Script([*deltas, {"content": "x"}], dies_after=len(deltas))) as server:
        compare(snap_compare, FakeLink(server.link_state), size, script)


@SIZES
def test_options_of_a_chat(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        behind = ("0 of 32,768", "F2 Chat", "Commands")  # what shows behind the options
        await until(pilot, lambda: all(words in shown(pilot.app) for words in behind))
        await settle(pilot)
        await pilot.press("f8")
        await until(pilot, lambda: "System prompt" in shown(pilot.app) or "Preset" in shown(pilot.app))
        await settle(pilot)
        pilot.app.screen.query_one("#fields").scroll_home(animate=False, immediate=True)  # the cursor scrolls, at times

    compare(snap_compare, FakeLink(READY), size, script)


@SIZES
def test_settings(snap_compare: Compare, size: tuple[int, int]) -> None:

    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f7")
        await until(pilot, lambda: pilot.app.current_mode == "settings")
        pilot.app.screen.query_one("#file").update("Kept in app.yaml in the data folder")  # type: ignore[attr-defined]

    compare(snap_compare, FakeLink(READY), size, script)


@SIZES
def test_help(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await pilot.press("f1")
        await until(pilot, lambda: "New line" in shown(pilot.app))

    compare(snap_compare, FakeLink(READY), size, script)


@pytest.mark.parametrize("theme", ["ansi-dark", "ktdesk-light"])
def test_colours(snap_compare: Compare, theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", theme)
    keep_conversation()

    async def script(pilot: Pilot[None]) -> None:
        await open_conversation(pilot, with_list=False)

    compare(snap_compare, FakeLink(READY), (80, 24), script)


def test_a_terminal_without_room(snap_compare: Compare) -> None:
    async def script(pilot: Pilot[None]) -> None:
        pass

    compare(snap_compare, FakeLink(READY), (20, 5), script)
