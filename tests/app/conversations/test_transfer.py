"""Conversations out of the app and into it: Markdown, JSON, exports of ChatGPT and Open WebUI."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ktdesk.conversations.errors import ImportFormatError
from ktdesk.conversations.exporting import file_name, to_json, to_markdown, write_new
from ktdesk.conversations.importing import read_conversations
from ktdesk.conversations.messages import Attachment, Conversation, Measured, Message, ToolCall
from ktdesk.conversations.store import ConversationStore

OURS = Conversation(
    7,
    "Rivers / lakes",
    1.0,
    2.0,
    "Be brief.",
    {"temperature": 0.5},
    tags=("water",),
    tip_id=3,
    messages={
        1: Message(1, None, "user", "Which?", 1.0, attachments=(Attachment("a.txt", "Rhine"),)),
        2: Message(2, 1, "assistant", "None.", 1.5, state="stopped"),
        3: Message(
            *(3, 1, "assistant", "The Rhine.", 2.0, "hm"),
            model="m",
            calls=(ToolCall("c", "f", "{}"),),
            measured=Measured(1),
        ),
    },
)


def saved(tmp_path: Path, facts: Any, name: str = "conversations.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(facts), encoding="utf-8")
    return path


def test_what_is_exported_as_json_is_the_same_when_it_is_imported(tmp_path: Path) -> None:
    (read,) = read_conversations(saved(tmp_path, json.loads(to_json([OURS]))))
    assert read == Conversation(**{**vars(OURS), "conversation_id": 0})
    kept = ConversationStore(tmp_path / "c.db").insert(read)
    assert [message.content for message in kept.path] == ["Which?", "The Rhine."]
    assert len(kept.versions(kept.path[1])) == 2


def test_markdown_has_the_branch_that_is_read() -> None:
    text = to_markdown(OURS)
    assert text.startswith("# Rivers / lakes\n")
    for part in ("## System\n\nBe brief.", "## You\n\nWhich?\n\na.txt:\n```\nRhine\n```", "## Answer (m)", "hm", "`f`"):
        assert part in text
    assert "None." not in text


def test_no_file_is_written_over(tmp_path: Path) -> None:
    name = file_name(OURS, "md")
    assert name == "Rivers lakes.md"
    assert write_new(tmp_path, name, "a").name == "Rivers lakes.md"
    assert write_new(tmp_path, name, "b").name == "Rivers lakes 2.md"
    assert (tmp_path / name).read_text() == "a"


def chatgpt_node(name: str, parent: str | None, children: list[str], message: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": name, "parent": parent, "children": children, "message": message}


def said(role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    return {"author": {"role": role}, "create_time": 5.0, "content": content, "metadata": {}, **more}


CHATGPT = {
    "title": "A chat",
    "create_time": 1.0,
    "update_time": 2.0,
    "current_node": "e",
    "mapping": {
        "root": chatgpt_node("root", None, ["s"], None),
        "s": chatgpt_node("s", "root", ["a"], said("system", "")),
        "a": chatgpt_node("a", "s", ["b", "c"], said("user", "question")),
        "b": chatgpt_node("b", "a", [], said("assistant", "first", metadata={"model_slug": "gpt-x"})),
        "c": chatgpt_node(
            "c",
            "a",
            ["d"],
            said("assistant", content={"content_type": "thoughts", "thoughts": [{"content": "I think"}]}),
        ),
        "d": chatgpt_node("d", "c", ["e"], said("assistant", "second")),
        "e": chatgpt_node(
            "e",
            "d",
            [],
            said("user", {"content_type": "image_asset_pointer"}, "look"),
        ),
    },
}


def test_a_chatgpt_export_keeps_its_branches_and_thoughts(tmp_path: Path) -> None:
    (chat,) = read_conversations(saved(tmp_path, [CHATGPT]))
    assert [(message.role, message.content, message.reasoning) for message in chat.path] == [
        ("user", "question", ""),
        ("assistant", "second", "I think"),
        ("user", "[image]\n\nlook", ""),
    ]
    assert [message.content for message in chat.versions(chat.path[1])] == ["first", "second"]
    assert chat.versions(chat.path[1])[0].model == "gpt-x"
    assert len(ConversationStore(tmp_path / "c.db").insert(chat).messages) == 4


def test_a_chatgpt_export_is_read_from_its_zip(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/conversations.json", json.dumps([CHATGPT, CHATGPT]))
        archive.writestr("user.json", "{}")
    assert len(read_conversations(path)) == 2


WEBUI_MESSAGES = {
    "1": {"id": "1", "parentId": None, "childrenIds": ["2", "3"], "role": "user", "content": "q", "timestamp": 5},
    "2": {"id": "2", "parentId": "1", "childrenIds": [], "role": "assistant", "content": "old", "model": "m"},
    "3": {
        "id": "3",
        "parentId": "1",
        "childrenIds": [],
        "role": "assistant",
        "content": '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n'
        "&gt; I &lt;think&gt;\n&gt; so\n</details>\nnew",
    },
}


def test_an_open_webui_export_keeps_its_branches_and_reasoning(tmp_path: Path) -> None:
    history = {"messages": WEBUI_MESSAGES, "currentId": "3"}
    chat_facts = {"title": "t", "history": history, "messages": [], "tags": ["x"], "params": {"system": "s"}}
    facts = {"id": "x", "title": "A chat", "chat": chat_facts, "created_at": 1700000000, "updated_at": 1700000001000}
    (chat,) = read_conversations(saved(tmp_path, [facts]))
    assert (chat.title, chat.system, chat.tags, chat.created) == ("A chat", "s", ("x",), 1700000000.0)
    assert chat.changed == pytest.approx(1700000001)
    assert [(message.content, message.reasoning) for message in chat.path] == [("q", ""), ("new", "I <think>\nso")]
    assert [message.content for message in chat.versions(chat.path[1])] == ["old", "new"]


def test_an_old_open_webui_export_is_a_list_of_messages(tmp_path: Path) -> None:
    messages = [{"role": role, "content": role[0]} for role in ("system", "user", "assistant")]
    (chat,) = read_conversations(saved(tmp_path, [{"title": "t", "chat": {"messages": messages}}]))
    assert chat.system == "s"
    assert [message.content for message in chat.path] == ["u", "a"]


@pytest.mark.parametrize(
    "facts",
    [
        {"a": 1},
        [1, 2],
        "text",
        [{"mapping": {"a": {"message": {"author": {"role": "user"}, "content": {"parts": [3]}}}}}],
        {"format": "ktdesk-conversations", "version": 99},
        {"format": "ktdesk-conversations", "version": 1, "conversations": [{"messages": [{}]}]},
    ],
)
def test_what_is_no_export_is_refused_with_its_name(tmp_path: Path, facts: Any) -> None:
    with pytest.raises(ImportFormatError, match="conversations"):
        read_conversations(saved(tmp_path, facts))


def test_files_that_are_broken_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for data in (b"{", b"\xff\xfe\x00", b"PK\x03\x04 broken", b"[" * 100_000):
        path.write_bytes(data)
        with pytest.raises(ImportFormatError):
            read_conversations(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.json", "[]")
    with pytest.raises(ImportFormatError, match="no conversations"):
        read_conversations(path)
