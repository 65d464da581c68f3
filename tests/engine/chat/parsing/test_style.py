"""Which family a template belongs to, told from the tags that it spells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ktdesk_engine.chat.parsing.style import answer_style


@pytest.mark.parametrize(
    ("template", "calls", "reasoning"),
    [
        ("{{ messages }}", None, None),
        ("{% if tools %}<tool_call>{% endif %}</think>", "hermes", "<think>"),
        ("{% if tools %}<tool_call><function=x><parameter=y>{% endif %}", "qwen3-coder", None),
        ("{% if tools %}<tool_call><arg_key>{% endif %}</think>", "glm", "<think>"),
        ("{% if tools %}<｜tool▁calls▁begin｜>{% endif %}</think>", "deepseek", "<think>"),
        ("{% if tools %}<｜tool▁calls▁begin｜>```json{% endif %}</think>", "deepseek-fenced", "<think>"),
        ("{% if tools %}<｜DSML｜function_calls>{% endif %}", "deepseek-dsml", None),
        ("{% if tools %}<|tool_calls_section_begin|>{% endif %}", "kimi", None),
        ("{% if tools %}<minimax:tool_call>{% endif %}</think>", "minimax", "<think>"),
        ("{% if tools %}[TOOL_CALLS]{% endif %}[/THINK]", "mistral", "[THINK]"),
        ('{% if tools %}{"name": function name, "parameters": ...}{% endif %}', "plain", None),
        ("{% if tools %}<|channel|><|message|>{% endif %}", "harmony", None),
    ],
)
def test_the_tags_of_a_template_tell_its_family(template: str, calls: str | None, reasoning: str | None) -> None:
    style = answer_style(template)
    assert (style.calls and style.calls.name) == calls
    assert (style.reasoning and style.reasoning[0]) == reasoning


def test_real_templates_are_told_apart() -> None:
    folder = os.environ.get("KTDESK_TEMPLATES")
    if not folder:
        pytest.skip("KTDESK_TEMPLATES names no folder of templates")
    for path in Path(folder).glob("*.jinja"):
        style = answer_style(path.read_text())
        assert style.calls is not None or "tools" not in path.read_text(), path
