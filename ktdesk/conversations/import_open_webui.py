"""Open WebUI's export: a list of chats, each with a tree of messages, or in older ones a list."""

from __future__ import annotations

import html
import re
from typing import Any, cast

from ktdesk.conversations.messages import UNTITLED, Conversation, Message, Role

ROLES = ("user", "assistant", "tool")
REASONING = re.compile(r'<details type="reasoning"[^>]*>(.*?)</details>\s*', re.DOTALL)
SUMMARY = re.compile(r"<summary>.*?</summary>", re.DOTALL)


def looks_like_open_webui(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("chat", item), dict) and "messages" in _tree(item)


def open_webui_conversation(item: dict[str, Any]) -> Conversation:
    chat = item.get("chat", item)
    tree = _tree(item)
    conversation = Conversation(
        0,
        str(item.get("title") or chat.get("title") or UNTITLED),
        _seconds(item.get("created_at") or chat.get("timestamp")),
        _seconds(item.get("updated_at") or item.get("created_at") or chat.get("timestamp")),
        system=str(chat.get("system") or (chat.get("params") or {}).get("system") or ""),
        tags=tuple(str(tag.get("name") if isinstance(tag, dict) else tag) for tag in chat.get("tags") or ()),
    )
    ids: dict[str, int | None] = {}
    for name, facts, above in _in_order(tree["messages"]):
        parent_id = ids.get(above)
        if facts.get("role") not in ROLES:
            conversation.system = conversation.system or str(facts.get("content") or "")
            ids[name] = parent_id
            continue
        message = _message(facts, parent_id, len(conversation.messages) + 1)
        conversation.put(message)
        ids[name] = message.message_id
    conversation.tip_id = ids.get(str(tree.get("currentId")), max(conversation.messages, default=None))
    return conversation


def _tree(item: dict[str, Any]) -> dict[str, Any]:
    chat = item.get("chat", item)
    history = chat.get("history")
    return history if isinstance(history, dict) and history.get("messages") else chat


def _in_order(messages: Any) -> list[tuple[str, dict[str, Any], str]]:
    """Name, message and name of the one above it; parents before their children."""
    if isinstance(messages, list):
        names = [str(index) for index in range(len(messages))]
        return [(name, facts, str(int(name) - 1)) for name, facts in zip(names, messages, strict=True)]
    pending = [name for name, facts in messages.items() if facts.get("parentId") not in messages]
    found, seen = [], set(pending)
    children: dict[str, list[str]] = {}
    for name, facts in messages.items():
        children.setdefault(str(facts.get("parentId")), []).append(name)
    while pending:
        name = pending.pop(0)
        found.append((name, messages[name], str(messages[name].get("parentId"))))
        for child in children.get(name, ()):
            if child not in seen:
                seen.add(child)
                pending.append(child)
    return found


def _message(facts: dict[str, Any], parent_id: int | None, message_id: int) -> Message:
    content = facts.get("content") or ""
    if not isinstance(content, str):
        content = "\n\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
    reasoning = "\n\n".join(_plain(match) for match in REASONING.findall(content))
    return Message(
        message_id,
        parent_id,
        cast("Role", facts["role"]),
        REASONING.sub("", content).strip(),
        _seconds(facts.get("timestamp")),
        reasoning,
        model=str(facts.get("model") or ""),
    )


def _plain(details: str) -> str:
    """Of reasoning, which is kept as a quotation in HTML."""
    lines = html.unescape(SUMMARY.sub("", details)).strip().splitlines()
    return "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)


def _seconds(stamp: Any) -> float:
    """Some versions wrote milliseconds, some nanoseconds."""
    seconds = float(stamp or 0.0)
    while seconds > 1e11:
        seconds /= 1000.0
    return seconds
