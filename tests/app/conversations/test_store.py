"""What is kept of conversations: trees of messages, search, damage, full disks."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from ktdesk.conversations.errors import DamagedStoreError, NotSavedError
from ktdesk.conversations.messages import Attachment, Conversation, Measured, Message, ToolCall
from ktdesk.conversations.search import MARK_BEGIN, MARK_END, search
from ktdesk.conversations.store import ConversationStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.db"


@pytest.fixture
def store(path: Path) -> ConversationStore:
    return ConversationStore(path)


def talk(store: ConversationStore, *texts: str, title: str = "A title") -> Conversation:
    conversation = store.create(title)
    for number, text in enumerate(texts):
        store.add(conversation, conversation.tip_id, "assistant" if number % 2 else "user", text)
    return conversation


def test_a_conversation_is_the_same_when_it_is_read_again(store: ConversationStore, path: Path) -> None:
    conversation = store.create("Title", "Be brief.", {"temperature": 0.5})
    question = store.add(conversation, None, "user", "q", attachments=(Attachment("a.txt", "text"),))
    measured = Measured(10, 20, 5, 0.5, 0.25, 2.0)
    more = {"calls": (ToolCall("c1", "f", "{}"),), "measured": measured, "reasoning": "hm", "reasoning_seconds": 1.5}
    store.add(conversation, question.message_id, "assistant", "a", model="m", finish_reason="stop", **more)
    conversation.tags = ("one", "two")
    store.describe(conversation)
    store.close()
    assert ConversationStore(path).load(conversation.conversation_id) == conversation


def test_versions_are_siblings_and_each_keeps_what_followed_it(store: ConversationStore) -> None:
    conversation = talk(store, "q1", "a1", "q2", "a2")
    first = conversation.path[0]
    edited = store.add(conversation, None, "user", "q1 again")
    assert [message.content for message in conversation.path] == ["q1 again"]
    assert conversation.versions(edited) == [first, edited]
    store.set_tip(conversation, conversation.newest_tip(first.message_id))
    assert [message.content for message in conversation.path] == ["q1", "a1", "q2", "a2"]


def test_what_is_sent_has_the_system_prompt_attachments_calls_and_no_empty_answers(store: ConversationStore) -> None:
    conversation = store.create("t", "Be brief.")
    store.add(conversation, None, "user", "look", attachments=(Attachment("a.txt", "has ``` in it"),))
    store.add(conversation, conversation.tip_id, "assistant", "", state="failed")
    store.add(conversation, conversation.tip_id, "assistant", "", calls=(ToolCall("c1", "f", "{}"),))
    assert [call.call_id for call in conversation.open_calls()] == ["c1"]
    store.add(conversation, conversation.tip_id, "tool", "42", call_id="c1")
    assert conversation.open_calls() == []
    assert conversation.sent(conversation.tip_id) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look\n\na.txt:\n````\nhas ``` in it\n````"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]


def test_search_finds_words_beginnings_accents_and_titles(store: ConversationStore) -> None:
    rivers = talk(store, "Which rivers?", "The Söndre is a river in Norway.", title="Water")
    talk(store, "Something else", "entirely")
    assert [hit.conversation_id for hit in search(store, "sondre norw")] == [rivers.conversation_id]
    assert f"{MARK_BEGIN}Norway{MARK_END}" in search(store, "norway")[0].excerpt
    assert [hit.title for hit in search(store, "wat")] == ["Water"]
    for text in ('"', "a AND", "NEAR(", "*", "100%", "", "x" * 5000):
        assert search(store, text) == []


def test_an_answer_is_found_once_it_is_done_and_not_after_it_is_deleted(store: ConversationStore) -> None:
    conversation = talk(store, "q")
    answer = store.add(conversation, conversation.tip_id, "assistant", "", state="streaming")
    store.save(conversation.conversation_id, Message(**{**vars(answer), "content": "zebra"}))
    assert not search(store, "zebra")
    store.save(conversation.conversation_id, Message(**{**vars(answer), "content": "zebra", "state": "done"}))
    assert search(store, "zebra")
    store.delete(conversation.conversation_id)
    assert not search(store, "zebra")
    assert store.load(conversation.conversation_id) is None


def test_an_answer_that_a_kill_interrupted_stays_as_far_as_it_came(store: ConversationStore, path: Path) -> None:
    conversation = talk(store, "q")
    answer = store.add(conversation, conversation.tip_id, "assistant", "half", state="streaming")
    again = ConversationStore(path)  # the first is not closed, as after a kill
    assert again.end_interrupted() == 1
    loaded = again.load(conversation.conversation_id)
    assert loaded is not None
    assert loaded.messages[answer.message_id].state == "stopped"
    assert search(again, "half")


def test_the_list_has_the_newest_first_and_those_of_a_tag(store: ConversationStore) -> None:
    old, new = talk(store, "a", title="old"), talk(store, "b", "c", title="new")
    old.tags = ("x",)
    store.describe(old)
    assert [(item.title, item.num_messages, item.tags) for item in store.summaries()] == [
        ("new", 2, ()),
        ("old", 1, ("x",)),
    ]
    assert [item.title for item in store.summaries(tag="x")] == ["old"]
    assert store.tags() == ["x"]
    store.add(old, old.tip_id, "assistant", "later")
    assert store.summaries()[0].title == "old"
    assert new.conversation_id == store.summaries()[1].conversation_id


@pytest.mark.parametrize("data", [b"", b"no database" * 1000, None])
def test_a_damaged_database_is_kept_aside_and_a_new_one_begun(path: Path, data: bytes | None) -> None:
    path.parent.mkdir()
    if data is None:
        ConversationStore(path).close()
        whole = path.read_bytes()
        data = whole[:100] + b"\xff" * (len(whole) - 100)
    path.write_bytes(data)
    store = ConversationStore(path)
    talk(store, "q")
    aside = store.database.kept_aside
    if data:
        assert aside is not None
        assert aside.read_bytes() == data
    else:
        assert aside is None  # an empty file is a database without tables


def test_damage_that_is_met_later_is_told_and_the_store_can_begin_anew(store: ConversationStore, path: Path) -> None:
    conversation = talk(store, *["text " * 500] * 40)
    store.close()
    data = bytearray(path.read_bytes())
    half = len(data) // 2
    data[half:] = b"\xff" * (len(data) - half)
    path.write_bytes(data)
    store = ConversationStore(path)
    assert store.database.kept_aside is None
    with pytest.raises(DamagedStoreError):
        store.load(conversation.conversation_id)
    store.database.begin_anew()
    assert store.database.kept_aside is not None
    assert len(store.insert(conversation).messages) == 40


def test_a_full_disk_is_told_and_nothing_is_half_written(store: ConversationStore) -> None:
    conversation = talk(store, "q")
    with store.database.transaction() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    store.database._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(NotSavedError, match="full"):
        store.add(conversation, conversation.tip_id, "assistant", "long " * 10_000)
    store.database._connection.execute("PRAGMA max_page_count = 1000000")
    loaded = store.load(conversation.conversation_id)
    assert loaded is not None
    assert len(loaded.messages) == 1
    store.add(conversation, conversation.tip_id, "assistant", "long " * 10_000)


def test_a_database_of_a_newer_version_is_left_alone(store: ConversationStore, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(NotSavedError, match="newer ktdesk"):
        ConversationStore(path)


def test_halves_of_surrogate_pairs_are_kept_as_question_marks(store: ConversationStore) -> None:
    conversation = talk(store, "a\ud800b")
    loaded = store.load(conversation.conversation_id)
    assert loaded is not None
    assert loaded.path[0].content == "a?b"


def test_threads_may_write_at_the_same_time(store: ConversationStore) -> None:
    conversations = [store.create(str(number)) for number in range(4)]

    def write(conversation: Conversation) -> None:
        for _ in range(20):
            store.add(conversation, conversation.tip_id, "user", "x")

    threads = [threading.Thread(target=write, args=(conversation,)) for conversation in conversations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [item.num_messages for item in store.summaries()] == [20] * 4


def test_a_loop_in_the_tree_does_not_hang(store: ConversationStore) -> None:
    conversation = talk(store, "a", "b")
    with store.database.transaction() as db:
        db.execute("UPDATE message SET parent = id + 1 WHERE role = 'user'")
    loaded = store.load(conversation.conversation_id)
    assert loaded is not None
    assert len(loaded.path) == 2
