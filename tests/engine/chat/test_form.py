from __future__ import annotations

from typing import Any

import pytest

from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.chat.template import ChatTemplate

CALL: dict[str, Any] = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get", "arguments": '{"city": "Köln", "n": 1}'},
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call00001", "content": "42"},
]
LOOP = "{% for m in messages %}{% for c in m.tool_calls or [] %}BODY{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{{ c.function.name }}{{ c.function.arguments | tojson }}", 'get{"city": "Köln", "n": 1}'),
        ("{{ c.function.name + c.function.arguments }}", 'get{"city": "Köln", "n": 1}'),
        ("{{ c.function.name }}{{ c.function.arguments }}", 'get{"city": "Köln", "n": 1}'),
        (
            "{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}",
            "get city=Köln n=1",
        ),
        (
            "{% if m.content is none %}{{ c.function.name + c.function.arguments }}{% endif %}",
            'get{"city": "Köln", "n": 1}',
        ),
        (
            "{% if m.content == '' %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endif %}",
            'get{"city": "Köln", "n": 1}',
        ),
        (
            "{{ m.content }}{{ c.function.name }}{{ c.function.arguments | tojson }}",
            'get{"city": "Köln", "n": 1}',
        ),
    ],
    ids=["as JSON", "joined", "printed", "item by item", "content none", "content empty", "content printed"],
)
def test_tool_calls_reach_a_template_in_the_form_that_it_reads(body: str, text: str) -> None:
    with ChatTemplate(TemplateSource({"default": LOOP.replace("BODY", body)})) as template:
        assert template.render(MESSAGES).text == text


def test_a_template_that_reads_no_tool_calls_gets_the_usual_form() -> None:
    with ChatTemplate(TemplateSource({"default": "{{ messages | tojson }}"})) as template:
        message = {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
        assert template.render([message]).text == '[{"role": "assistant", "content": "a"}]'
