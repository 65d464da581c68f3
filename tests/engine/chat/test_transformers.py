"""The same template and conversation given to transformers and to the engine, where both are installed.

KTDESK_TEMPLATES names a folder of further templates (*.jinja), say those of real models.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.errors import TemplateError

pytest.importorskip("transformers", reason="transformers is not installed")

DATA = Path(__file__).parents[2] / "data" / "chat"
FOLDER = os.environ.get("KTDESK_TEMPLATES")
MORE = sorted(Path(FOLDER).glob("*.jinja")) if FOLDER else []


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_expected", DATA / "render_expected.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle = load_generator()
CONVERSATIONS: dict[str, Any] = oracle.load("conversations.json")
TOOLS: dict[str, Any] = oracle.load("tools.json")


@pytest.fixture(
    scope="module", params=[*sorted((DATA / "templates").glob("*.jinja")), *MORE], ids=lambda path: path.stem
)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, ChatTemplate, bool]]:
    text = request.param.read_text(encoding="utf-8")
    source = TemplateSource({"default": text}, oracle.SPECIAL_TOKENS)
    with ChatTemplate(source, clock=lambda: datetime(2025, 3, 9, 14, 5, 6)) as template:
        yield text, template, request.param.stem == oracle.PARTS_ONLY


def as_clients_send(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls, "content": message["content"] or None}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_template_renders_as_in_transformers(pair: tuple[str, ChatTemplate, bool], name: str) -> None:
    text, template, parts = pair
    conversation = CONVERSATIONS[name]
    messages = [as_clients_send(message) for message in conversation["messages"]]
    options = {
        "tools": TOOLS.get(conversation.get("tools")),
        "add_generation_prompt": conversation.get("add_generation_prompt", True),
        "variables": conversation.get("variables"),
    }
    try:
        expected = oracle.render_with_transformers(text, conversation, parts=parts)
    except oracle.FAILURES:
        with pytest.raises(TemplateError):
            template.render(messages, **options)
    else:
        assert template.render(messages, **options).text == expected


def test_the_committed_texts_are_what_transformers_renders_today() -> None:
    for template_name, texts in oracle.load("expected.json").items():
        template = (DATA / "templates" / f"{template_name}.jinja").read_text(encoding="utf-8")
        for name, expected in texts.items():
            parts = template_name == oracle.PARTS_ONLY
            if "text" in expected:
                assert oracle.render_with_transformers(template, CONVERSATIONS[name], parts) == expected["text"]
