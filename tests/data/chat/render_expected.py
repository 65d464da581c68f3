"""Writes expected.json: the templates here, rendered on the conversations here by transformers.

Run it where transformers is installed, after changing a template or a conversation:
`python tests/data/chat/render_expected.py`. The tests then need no transformers.
"""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

HERE = Path(__file__).parent
FAILURES = (jinja2.TemplateError, TypeError)
"""What a template raises by itself, or by joining a text and a mapping."""
PARTS_ONLY = "parts_only"
"""The template that wants content as a list of parts."""
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class FrozenClock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> FrozenClock:
        return cls(2025, 3, 9, 14, 5, 6)


def load(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def variants(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The conversation with arguments of tool calls as mappings or JSON, and empty content as "" or None."""
    forms = itertools.product((False, True), ("", None))
    found = [[_variant(message, *form) for message in messages] for form in forms]
    return found if any("tool_calls" in message for message in messages) else found[:1]


def _variant(message: dict[str, Any], as_json: bool, no_words: str | None) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        arguments = call["function"]["arguments"]
        if as_json:
            arguments = json.dumps(arguments, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    return {**message, "tool_calls": calls, "content": message["content"] or no_words}


def shows_calls(text: str, messages: list[dict[str, Any]]) -> bool:
    """True if the tool calls are all in the text, and not in Python's notation or escaped twice."""
    for message in messages:
        for call in message.get("tool_calls", []):
            arguments = call["function"]["arguments"]
            for name, value in arguments.items():
                whole = call["function"]["name"] in text and name in text and str(value) in text
                if isinstance(value, str) and (not whole or f"'{name}'" in text or f'\\"{name}\\"' in text):
                    return False
    return "None" not in text


def in_parts(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"] or ""}]}


def render_with_transformers(template: str, conversation: dict[str, Any], parts: bool = False) -> str:
    """Text as transformers renders it, in the variant of the conversation that the template reads."""
    from transformers.utils import chat_template_utils  # type: ignore[import-not-found, unused-ignore]

    chat_template_utils.datetime = FrozenClock
    tools = load("tools.json")[conversation["tools"]] if "tools" in conversation else None
    texts, errors = [], []
    for messages in variants(conversation["messages"]):
        if parts:
            messages = [in_parts(message) for message in messages]
        try:
            rendered, _ = chat_template_utils.render_jinja_template(
                [messages],
                tools=tools,
                chat_template=template,
                add_generation_prompt=conversation.get("add_generation_prompt", True),
                **SPECIAL_TOKENS,
                **conversation.get("variables", {}),
            )
        except FAILURES as error:
            errors.append(error)
            continue
        texts.append(rendered[0])
        if shows_calls(rendered[0], conversation["messages"]):
            return rendered[0]
    if texts:
        return texts[0]
    raise errors[0]


def outcome(path: Path, conversation: dict[str, Any]) -> dict[str, str]:
    template = path.read_text(encoding="utf-8")
    try:
        return {"text": render_with_transformers(template, conversation, parts=path.stem == PARTS_ONLY)}
    except FAILURES as error:
        return {"error": str(error)}


def main() -> None:
    conversations = load("conversations.json")
    expected = {
        path.stem: {name: outcome(path, conversation) for name, conversation in conversations.items()}
        for path in sorted((HERE / "templates").glob("*.jinja"))
    }
    with (HERE / "expected.json").open("w", encoding="utf-8") as file:
        json.dump(expected, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
