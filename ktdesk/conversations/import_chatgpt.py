"""ChatGPT's export, `conversations.json`: a tree of nodes, some of which nobody ever saw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from ktdesk.conversations.messages import UNTITLED, Conversation, Message, Role

ROLES = ("user", "assistant", "tool")


def looks_like_chatgpt(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("mapping"), dict)


def chatgpt_conversation(item: dict[str, Any]) -> Conversation:
    """With all its branches. What holds no text says in brackets what it was."""
    nodes = item["mapping"]
    conversation = Conversation(
        0,
        str(item.get("title") or UNTITLED),
        float(item.get("create_time") or 0.0),
        float(item.get("update_time") or item.get("create_time") or 0.0),
    )
    ids: dict[str, int | None] = {}
    """Of each node, the message that it became or that stands above it."""
    thoughts: dict[str, str] = {}
    """Of nodes that hold nothing else: they belong to the answer below."""
    for name in _from_the_root(nodes):
        node = nodes[name]
        above = node.get("parent") or ""
        parent_id, thought = ids.get(above), thoughts.get(above, "")
        message = _message(node.get("message"), parent_id, len(conversation.messages) + 1)
        if message is None or not message.content:
            ids[name] = parent_id
            thoughts[name] = thought if message is None else f"{thought}\n\n{message.reasoning}".strip()
        else:
            conversation.put(replace(message, reasoning=thought if message.role == "assistant" else ""))
            ids[name] = message.message_id
    conversation.system = _system(nodes)
    conversation.tip_id = ids.get(str(item.get("current_node")), max(conversation.messages, default=None))
    return conversation


def _from_the_root(nodes: dict[str, Any]) -> list[str]:
    """Parents before their children, each node once."""
    pending = [name for name, node in nodes.items() if node.get("parent") not in nodes]
    found: list[str] = []
    seen = set(pending)
    while pending:
        name = pending.pop(0)
        found.append(name)
        for child in nodes[name].get("children") or ():
            if child in nodes and child not in seen:
                seen.add(child)
                pending.append(child)
    return found


def _message(facts: dict[str, Any] | None, parent_id: int | None, message_id: int) -> Message | None:
    if not facts or (facts.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
        return None
    role = facts["author"]["role"]
    text, reasoning = _texts(facts.get("content") or {})
    if role not in ROLES or not (text or reasoning):
        return None
    model = str((facts.get("metadata") or {}).get("model_slug") or "") if role == "assistant" else ""
    created = float(facts.get("create_time") or 0.0)
    return Message(message_id, parent_id, cast("Role", role), text, created, reasoning, model=model)


def _texts(content: dict[str, Any]) -> tuple[str, str]:
    """Content, and reasoning."""
    kind = content.get("content_type")
    if kind == "thoughts":
        return "", "\n\n".join(str(thought.get("content") or "") for thought in content.get("thoughts") or ())
    if kind in ("reasoning_recap", "user_editable_context", "model_editable_context"):
        return "", ""
    if kind == "code":
        return f"```{content.get('language') or ''}\n{content.get('text') or ''}\n```", ""
    if kind == "execution_output":
        return f"```\n{content.get('text') or ''}\n```", ""
    parts = content.get("parts")
    if parts is None:
        return str(content.get("text") or ""), ""
    return "\n\n".join(text for text in map(_part, parts) if text), ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = str(part.get("content_type") or "something").removesuffix("_asset_pointer")
    return str(part.get("text") or f"[{kind.replace('_', ' ')}]")


def _system(nodes: dict[str, Any]) -> str:
    """The first that is not empty."""
    for node in nodes.values():
        facts = node.get("message") or {}
        if (facts.get("author") or {}).get("role") == "system":
            text, _ = _texts(facts.get("content") or {})
            if text:
                return text
    return ""
