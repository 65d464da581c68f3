"""Chat, on a server that says what the test tells it to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driving import FakeLink, Script, click, drive, make_app, shown, until
from fake_chat_server import FakeChatServer, content, fake_chat_server, reasoning
from fake_chat_server import Script as Answer
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from ktdesk.conversations.database import Database
from ktdesk.conversations.messages import Conversation, Message
from ktdesk.conversations.store import FILE, ConversationStore
from ktdesk.model_link import LinkState
from ktdesk.server_records import ServerRecord
from ktdesk.tui.chat.composer import Composer
from ktdesk.tui.chat.conversation_list import ConversationList
from ktdesk.tui.chat.screen import ChatScreen
from ktdesk.tui.chat.transcript import Transcript
from ktdesk.tui.markdown.growing import GrowingMarkdown
from ktdesk.tui.markdown.styles import MarkdownStyles

HELLO = Answer(content("Hello **there**."))


def kept() -> list[Conversation]:
    """What the database has, as another process sees it."""
    store = ConversationStore(Path(os.environ["KTDESK_HOME"]) / FILE)
    found = [store.load(item.conversation_id) for item in store.summaries()]
    store.close()
    return [conversation for conversation in found if conversation is not None]


def screen_of(pilot: Pilot[None]) -> ChatScreen:
    assert isinstance(pilot.app.screen, ChatScreen)
    return pilot.app.screen


async def ready(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: "● fake-moe" in shown(pilot.app))


async def say(pilot: Pilot[None], text: str) -> None:
    composer = screen_of(pilot).query_one(Composer)
    composer.focus()
    composer.text = text
    await pilot.press("enter")


async def answered(pilot: Pilot[None], text: str) -> None:
    await until(pilot, lambda: text in shown(pilot.app) and not screen_of(pilot).session.is_answering)
    await pilot.pause()


def chat(script: Script, *answers: Answer, size: tuple[int, int] = (80, 24)) -> FakeChatServer:
    with fake_chat_server(*answers) as server:
        drive(make_app(FakeLink(server.link_state)), script, size)
    return server


def test_a_question_is_answered_shown_measured_and_kept() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "Who is there?")
        await answered(pilot, "Hello there.")
        text = " ".join(shown(pilot.app).split())
        assert "19.5 tok/s · 40 tokens · first after" in text
        assert "prompt 120 at 40 tok/s · 100 cached" in text
        assert "160 of 4,096" in text

    server = chat(script, HELLO)
    assert server.asked[0]["messages"] == [{"role": "user", "content": "Who is there?"}]
    (conversation,) = kept()
    assert conversation.title == "Who is there?"
    assert [(item.role, item.content, item.state) for item in conversation.path] == [
        ("user", "Who is there?", "done"),
        ("assistant", "Hello **there**.", "done"),
    ]


def test_what_is_typed_in_one_go_with_enter_is_sent_whole_and_a_paste_is_taken_once() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        composer = screen_of(pilot).query_one(Composer)
        for key in ("a", "b", "ctrl+j", "c", "enter"):
            character = key if len(key) == 1 else None
            pilot.app.post_message(Key(key, character))
        await answered(pilot, "Hello there.")
        pilot.app.post_message(Paste("pasted"))
        await until(pilot, lambda: composer.text == "pasted")

    server = chat(script, HELLO)
    assert server.asked[0]["messages"] == [{"role": "user", "content": "ab\nc"}]


def test_reasoning_is_folded_with_its_duration_and_unfolds() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "Think")
        await until(pilot, lambda: "▸ Thinking" in shown(pilot.app))
        server_of[0].go_on.set()
        await answered(pilot, "So it is.")
        assert "▸ Thought for" in shown(pilot.app)
        assert "deeply" not in shown(pilot.app)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "deeply" in shown(pilot.app))

    server_of: list[FakeChatServer] = []
    answer = Answer([*reasoning("I think deeply "), *content("So it is.")], holds_after=3)
    with fake_chat_server(answer) as server:
        server_of.append(server)
        drive(make_app(FakeLink(server.link_state)), script)
    assert kept()[0].path[1].reasoning == "Ithinkdeeply"


def test_escape_stops_at_once_and_what_came_is_kept() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "Go on and on")
        await until(pilot, lambda: "first part" in shown(pilot.app))
        await until(pilot, lambda: " 4 of 4,096" in shown(pilot.app))  # 12 letters guessed, one token counted
        await pilot.press("escape")
        await answered(pilot, "stopped")
        assert " 4 of 4,096" in shown(pilot.app)

    server = chat(script, Answer(content("first part second part", 11), holds_after=1))
    assert server.num_cancelled == 1
    answer = kept()[0].path[1]
    assert (answer.content, answer.state) == ("first part ", "stopped")


def test_asking_again_and_editing_make_versions_that_can_be_gone_through() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "Question")
        await answered(pilot, "one")
        await pilot.press("ctrl+r")
        await answered(pilot, "two")
        assert "2/2" in shown(pilot.app)
        await pilot.press("escape", "left")
        await answered(pilot, "one")
        assert "1/2" in shown(pilot.app)
        await pilot.press("up", "e")
        await until(pilot, lambda: screen_of(pilot).query_one(Composer).text == "Question")
        await pilot.press("s", "enter")
        await answered(pilot, "three")
        assert "Questions" in shown(pilot.app)
        await pilot.press("escape", "up", "left")
        await answered(pilot, "two")

    server = chat(script, *(Answer(content(text)) for text in ("one", "two", "three")))
    assert [body["messages"][-1]["content"] for body in server.asked] == ["Question", "Question", "Questions"]
    (conversation,) = kept()
    assert len(conversation.messages) == 5
    assert [message.content for message in conversation.path] == ["Question", "two"]


def test_a_fork_is_a_conversation_of_its_own() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "first")
        await answered(pilot, "Hello")
        await say(pilot, "second")
        await answered(pilot, "second")
        await pilot.press("escape", "up", "up", "f")
        await until(pilot, lambda: "(fork)" in shown(pilot.app))
        assert "second" not in shown(pilot.app)

    chat(script, HELLO)
    assert sorted(len(conversation.path) for conversation in kept()) == [2, 4]


def test_a_message_and_its_code_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "code")
        await answered(pilot, "print")
        await pilot.press("escape", "c")
        await until(pilot, lambda: pilot.app.clipboard == text)
        await pilot.press("b")
        await until(pilot, lambda: pilot.app.clipboard == "print(1)")
        assert (Path(os.environ["KTDESK_HOME"]) / "copied.txt").read_text() == "print(1)"
        pilot.app.clear_notifications()  # they push down what is below them
        await until(pilot, lambda: "was copied" not in shown(pilot.app))
        await until(pilot, lambda: [line for line in shown(pilot.app).splitlines() if line.endswith(" copy")])
        lines = shown(pilot.app).splitlines()
        line, at = next((y, text.index(" copy")) for y, text in enumerate(lines) if text.endswith(" copy"))
        pilot.app.copy_to_clipboard("")
        await pilot.click(offset=(at + 2, line))
        await until(pilot, lambda: pilot.app.clipboard == "print(1)")

    text = "Here:\n\n```python\nprint(1)\n```\n"
    chat(script, Answer(content(text)))


def test_a_file_is_attached_and_a_long_paste_becomes_an_attachment(tmp_path: Path) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: pilot.app.screen.query(Input))
        pilot.app.screen.query_one(Input).value = str(tmp_path / "notes.txt")
        await pilot.press("enter")
        await until(pilot, lambda: "notes.txt (9 bytes)" in shown(pilot.app))
        pilot.app.post_message(Paste("line\r\n" * 350_000))
        await until(pilot, lambda: "pasted text 1 (1,750,000 bytes)" in shown(pilot.app))
        await say(pilot, "Read this")
        await answered(pilot, "Hello there.")
        assert "▤ pasted text 1, 1.7 MiB" in shown(pilot.app)

    (tmp_path / "notes.txt").write_text("secret 42")
    server = chat(script, HELLO)
    sent = server.asked[0]["messages"][0]["content"]
    assert sent.startswith("Read this\n\nnotes.txt:\n```\nsecret 42\n```\n\npasted text 1:\n```\nline\nline")
    assert "\r" not in sent


def test_options_of_a_chat_are_sent_kept_and_saved_as_a_preset() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await pilot.press("f8")
        await until(pilot, lambda: pilot.app.screen.query("#system"))
        await until(pilot, lambda: "Cancel" in shown(pilot.app) and "Take" in shown(pilot.app))
        dialog = pilot.app.screen
        dialog.query_one("#system").load_text("Be brief.")  # type: ignore[attr-defined]
        dialog.query_one("#temperature", Input).value = "hot"
        dialog.query_one("#preset-name", Input).value = "Mine"
        dialog.query_one("#temperature", Input).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "Temperature must be a number from 0 to 2" in shown(pilot.app))
        dialog.query_one("#temperature", Input).value = "0.25"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ChatScreen))
        await say(pilot, "x")
        await answered(pilot, "Hello")

    server = chat(script, HELLO, size=(100, 30))
    assert server.asked[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert server.asked[0]["temperature"] == 0.25
    assert "top_p" not in server.asked[0]
    assert make_app().preferences.presets == {"Mine": {"temperature": 0.25}}
    assert kept()[0].sampling == {"temperature": 0.25}


def test_tool_calls_are_shown_and_their_results_are_written_by_the_user() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        screen_of(pilot).session.describe("", {}, '{"name": "weather", "parameters": {}}')
        await say(pilot, "Weather in Rome?")
        await answered(pilot, '⚙ weather {"city": "Rome"}')
        await until(pilot, lambda: "write what weather gave" in shown(pilot.app))
        await say(pilot, "sunny")
        await answered(pilot, "Hello there.")
        assert "Tool result" in shown(pilot.app)

    function = {"name": "weather", "arguments": ""}
    call: list[dict[str, Any]] = [{"index": 0, "id": "c1", "type": "function", "function": function}]
    rest = [{"index": 0, "function": {"arguments": '{"city": "Rome"}'}}]
    server = chat(script, Answer([{"tool_calls": call}, {"tool_calls": rest}], "tool_calls"), HELLO)
    assert server.asked[0]["tools"][0]["function"]["name"] == "weather"
    assert server.asked[1]["messages"][-1] == {"role": "tool", "content": "sunny", "tool_call_id": "c1"}


def test_a_server_that_dies_leaves_what_came_and_is_started_again() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await answered(pilot, "half an")
        await until(pilot, lambda: "Start it again" in shown(pilot.app))
        assert "What came" in " ".join(shown(pilot.app).split())
        await click(pilot, "FailureBar Button", lambda: "restart" in link.done)
        await answered(pilot, "Hello there.")

    with fake_chat_server(Answer(content("half an answer"), dies_after=2), HELLO) as server:
        link = FakeLink(server.link_state)
        drive(make_app(link), script)
    assert [message.content for message in kept()[0].versions(kept()[0].path[1])] == ["half an ", "Hello **there**."]


def test_a_server_that_is_stopped_here_ends_the_answer_at_once_and_says_so() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        link.record = ServerRecord(1, 0.0, server.url, 1, "fake-moe", "/models/fake-moe.gguf", "", False, {})
        await say(pilot, "x")
        await until(pilot, lambda: "half" in shown(pilot.app))
        pilot.app.change_link(lambda link: link.stop_server())  # type: ignore[attr-defined]
        await until(pilot, lambda: "Start it again" in shown(pilot.app))
        text = " ".join(shown(pilot.app).split())
        assert "The server ended before the answer did (it was stopped here). What came of it is kept." in text
        assert "○ fake-moe was stopped" in text
        assert not screen_of(pilot).session.is_answering

    with fake_chat_server(Answer(content("half an answer"), holds_after=2)) as server:
        link = FakeLink(server.link_state)
        drive(make_app(link), script, (120, 30))
    assert kept()[0].path[1].content == "half an "

    async def look_again(pilot: Pilot[None]) -> None:
        told = "Last time: “x”. Its last answer was cut; what came of it is kept. ctrl+l, then Enter, opens it."
        await until(pilot, lambda: told in " ".join(shown(pilot.app).split()))
        await pilot.press("ctrl+l", "enter")
        await until(pilot, lambda: "half an" in shown(pilot.app))
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "No model is loaded" in shown(pilot.app))
        assert "Last time" not in shown(pilot.app)

    drive(make_app(FakeLink()), look_again, (120, 30))


def test_a_server_that_was_told_to_stop_elsewhere_may_finish_its_answer() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        link.record = ServerRecord(1, 0.0, server.url, 1, "fake-moe", "/models/fake-moe.gguf", "", False, {})
        await say(pilot, "x")
        await until(pilot, lambda: "half" in shown(pilot.app))
        link.state = replace(link.state, stage="gone", reason="somebody wanted it", was_told=True)
        await until(pilot, lambda: "The server stops: somebody wanted it" in shown(pilot.app))
        server.go_on.set()
        await answered(pilot, "half an answer")
        assert "Start it again" in shown(pilot.app)

    with fake_chat_server(Answer(content("half an answer"), holds_after=2)) as server:
        link = FakeLink(server.link_state)
        drive(make_app(link), script, (120, 30))
    assert kept()[0].path[1].state == "done"


def test_a_server_that_goes_away_between_answers_is_started_again_by_enter() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await answered(pilot, "Hello there.")
        link.state = replace(link.state, stage="gone", reason="nobody asked it for 600 s", was_told=True)
        await until(
            pilot, lambda: "fake-moe: nobody asked it for 600 s. Start it again" in " ".join(shown(pilot.app).split())
        )
        await pilot.press("enter")
        await until(pilot, lambda: "restart" in link.done)
        link.state = server.link_state
        await ready(pilot)
        assert "Start it again" not in shown(pilot.app)

    with fake_chat_server(HELLO) as server:
        link = FakeLink(server.link_state)
        drive(make_app(link), script, (120, 30))
    assert len(server.asked) == 1


def test_another_conversation_while_an_answer_comes_keeps_what_came_of_it() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "first")
        await until(pilot, lambda: "half" in shown(pilot.app))
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "half" not in shown(pilot.app))
        await pilot.pause(1.5)  # the pictures of the first answer end
        await say(pilot, "second")
        await answered(pilot, "Hello there.")

    with fake_chat_server(Answer(content("half an answer"), holds_after=2), HELLO) as server:
        drive(make_app(FakeLink(server.link_state)), script)
    answers = {conversation.title: conversation.path[1] for conversation in kept()}
    assert (answers["first"].content, answers["first"].state) == ("half an ", "stopped")
    assert answers["second"].state == "done"


def test_who_leaves_while_an_answer_comes_finds_what_came_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await until(pilot, lambda: "half" in shown(pilot.app))
        await pilot.press("ctrl+q")

    chat(script, Answer(content("half an answer"), holds_after=2))
    assert (kept()[0].path[1].content, kept()[0].path[1].state) == ("half an ", "stopped")
    assert "Traceback" not in capfd.readouterr().err


def test_a_refusal_is_told_with_what_can_be_done() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await until(pilot, lambda: "the prompt is too long" in shown(pilot.app))
        assert "Ask again" in shown(pilot.app)

    chat(script, Answer(refusal=(400, "the prompt is too long")))


def test_a_question_before_the_model_is_ready_is_answered_when_it_is() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "fake-moe loads" in shown(pilot.app))
        await say(pilot, "x")
        await until(pilot, lambda: "begins when the model is loaded" in shown(pilot.app))
        link.state = server.link_state
        await answered(pilot, "Hello there.")

    with fake_chat_server(HELLO) as server:
        link = FakeLink(LinkState("loading", "fake-moe", server.url, percent=10.0))
        drive(make_app(link), script)


def test_an_answer_that_was_to_come_is_not_given_to_another_conversation() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "first")
        await answered(pilot, "Hello there.")
        link.state = replace(server.link_state, stage="loading")
        await until(pilot, lambda: "fake-moe loads" in shown(pilot.app))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "begins when the model is loaded" in shown(pilot.app))
        await pilot.press("ctrl+n")
        link.state = server.link_state
        await until(pilot, lambda: "is ready. Write below" in shown(pilot.app))
        assert not screen_of(pilot).answers.is_wanted

    with fake_chat_server(HELLO) as server:
        link = FakeLink(server.link_state)
        drive(make_app(link), script)
    assert len(server.asked) == 1


def test_a_question_without_a_model_and_enter_again_lead_to_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "no model" in shown(pilot.app))
        await pilot.press("x", "enter")
        await until(pilot, lambda: "No model is loaded" in shown(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: link.done == [f"start {demo}"])
        link.state = server.link_state
        await answered(pilot, "Hello there.")

    demo = Path(os.environ["KTDESK_HOME"]) / "demo.gguf"
    demo.touch()
    monkeypatch.setenv("KTDESK_DEMO_MODEL", str(demo))
    with fake_chat_server(HELLO) as server:
        link = FakeLink()
        drive(make_app(link), script)


def test_a_full_disk_is_told_and_saving_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await until(pilot, lambda: "Hello" in shown(pilot.app))
        database: Database = screen_of(pilot).session.store.database
        pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
        database._connection.execute(f"PRAGMA max_page_count = {pages}")
        server.go_on.set()
        await until(pilot, lambda: "Save again" in shown(pilot.app))
        database._connection.execute("PRAGMA max_page_count = 1000000")
        await click(pilot, "FailureBar Button", lambda: "It is saved" in shown(pilot.app))

    with fake_chat_server(Answer([*content("Hello", 5), *content("long " * 20_000, 1000)], holds_after=1)) as server:
        drive(make_app(FakeLink(server.link_state)), script)
    assert len(kept()[0].path[1].content) == 100_005


def test_conversations_are_listed_searched_renamed_tagged_and_deleted() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        for text in ("about zebras", "about lions"):
            await pilot.press("ctrl+n")
            await say(pilot, text)
            await answered(pilot, "Hello there.")
        await pilot.press("ctrl+g", *"zeb")
        listed = screen_of(pilot).query_one(ConversationList)
        await until(pilot, lambda: listed.query_one(OptionList).option_count == 2)  # by title, and by text
        await pilot.press("down", "enter")
        await until(pilot, lambda: "about zebras" in screen_of(pilot).session.shown[0][0].content)
        await pilot.press("ctrl+g", *["backspace"] * 3, "down", "r")
        await until(pilot, lambda: not isinstance(pilot.app.screen, ChatScreen))
        pilot.app.screen.query_one(Input).value = "Zebras!"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ChatScreen))
        await pilot.press("t")
        await until(pilot, lambda: not isinstance(pilot.app.screen, ChatScreen))
        await pilot.press(*"animals", "enter")
        await until(pilot, lambda: "#animals" in shown(pilot.app))
        await pilot.press("delete")
        await until(pilot, lambda: not isinstance(pilot.app.screen, ChatScreen))
        await click(pilot, "#yes", lambda: isinstance(pilot.app.screen, ChatScreen))
        await until(pilot, lambda: listed.query_one(OptionList).option_count == 1)

    chat(script, HELLO, size=(120, 30))
    assert len(kept()) == 1


def test_the_end_is_followed_until_the_user_scrolls_away_and_again_at_the_end() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await until(pilot, lambda: "line 59" in shown(pilot.app))
        transcript = screen_of(pilot).query_one(Transcript)
        transcript.focus()
        await pilot.press("pageup", "pageup")
        await pilot.pause(0.3)
        place = transcript.scroll_y
        assert not transcript.follows
        server.go_on.set()
        await until(pilot, lambda: not screen_of(pilot).session.is_answering)
        await pilot.pause(0.3)
        assert transcript.scroll_y == place
        await pilot.press("end")
        await until(pilot, lambda: "line 119" in shown(pilot.app))
        assert transcript.follows

    lines = [{"content": f"line {number}\n\n"} for number in range(120)]
    with fake_chat_server(Answer(lines, holds_after=60)) as server:
        drive(make_app(FakeLink(server.link_state)), script)


def test_pictures_of_a_stream_are_few_and_folded_reasoning_costs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    draw = GrowingMarkdown._draw

    def counted(self: GrowingMarkdown, width: int, styles: MarkdownStyles) -> None:
        drawn.append(self.text)
        draw(self, width, styles)

    async def script(pilot: Pilot[None]) -> None:
        pilot.app.change_preferences(renders_per_second=1.0)  # type: ignore[attr-defined]
        await ready(pilot)
        await say(pilot, "x")
        await answered(pilot, "word299")

    monkeypatch.setattr(GrowingMarkdown, "_draw", counted)
    words = [{"content": f"word{number} "} for number in range(300)]
    chat(script, Answer([*reasoning("some hidden thought " * 20), *words], seconds_between=0.002))
    assert "word299" in drawn[-1]
    assert len(drawn) < 40
    assert not [text for text in drawn if "hidden" in text]


def test_what_a_model_says_cannot_steer_the_terminal() -> None:
    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x\x1b[2J")
        await answered(pilot, "red")
        text = shown(pilot.app)
        assert "␛[31mred" in text
        assert "שלום 中文" in text
        assert not [letter for letter in text if not letter.isprintable() and letter != "\n"]

    chat(script, Answer(content("\x1b[31mred\x1b]52;c;AAAA\a \u202eevil שלום 中文 `\x9b1m`")))


def test_a_damaged_database_is_kept_aside_and_the_chat_begins_anew() -> None:
    home = Path(os.environ["KTDESK_HOME"])
    (home / FILE).write_bytes(b"no database at all " * 500)

    async def script(pilot: Pilot[None]) -> None:
        await ready(pilot)
        await say(pilot, "x")
        await answered(pilot, "Hello there.")
        await until(pilot, lambda: "was damaged" in " ".join(shown(pilot.app).split()))

    chat(script, HELLO, size=(100, 30))
    assert [path.read_bytes()[:11] for path in home.glob("conversations-damaged-*.db")] == [b"no database"]
    assert len(kept()) == 1


def test_long_conversations_open_at_their_end_and_are_drawn_as_far_as_they_are_seen() -> None:
    store = ConversationStore(Path(os.environ["KTDESK_HOME"]) / FILE)
    messages = {
        number: Message(
            number, number - 1 or None, "assistant" if number % 2 == 0 else "user", f"word{number} " * 40, 1.0
        )
        for number in range(1, 501)
    }
    long = store.insert(Conversation(0, "Long", 1.0, 1.0, tip_id=500, messages=messages))
    store.close()

    async def script(pilot: Pilot[None]) -> None:
        transcript = screen_of(pilot).query_one(Transcript)
        transcript.can_focus = True
        assert screen_of(pilot).session.open(long.conversation_id)
        screen_of(pilot).show_conversation()
        assert len(transcript._stack.guessed()) > 460
        await until(pilot, lambda: "word500" in shown(pilot.app))
        await until(pilot, lambda: not transcript._stack.guessed())
        await pilot.pause()
        assert "word500" in shown(pilot.app)
        transcript.focus()
        await pilot.press("home")
        await until(pilot, lambda: "word1 word1" in shown(pilot.app))

    drive(make_app(), script)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    yield
    import threading

    assert not [thread for thread in threading.enumerate() if thread.name == "answer"]
