from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.errors import ModelFileError, RequestError, TemplateError

DATA = Path(__file__).parents[2] / "data" / "chat"
TEMPLATES = sorted(path.stem for path in (DATA / "templates").glob("*.jinja"))
CONVERSATIONS = json.loads((DATA / "conversations.json").read_text(encoding="utf-8"))
TOOLS = json.loads((DATA / "tools.json").read_text(encoding="utf-8"))
EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


@dataclass
class File:
    """What from_gguf reads of a model file."""

    metadata: dict[str, Any] = field(default_factory=dict)
    path: Path = Path("model.gguf")


def vocabulary(control: tuple[str, ...] = (), user_defined: tuple[str, ...] = (), **more: Any) -> File:
    tokens = ["a", *control, *user_defined]
    types = np.array([1] + [3] * len(control) + [4] * len(user_defined), dtype=np.int32)
    named = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return File({"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, **named})


def render(text: str, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    with ChatTemplate(TemplateSource({"default": text}, SPECIAL_TOKENS)) as template:
        return template.render(messages or HI, **options).text


def as_clients_send(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments as JSON text, and no content where there are only tool calls: what OpenAI's API returns."""
    sent = []
    for message in messages:
        calls = [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in message.get("tool_calls", [])
        ]
        sent.append({**message, "tool_calls": calls, "content": message["content"] or None} if calls else message)
    return sent


@pytest.fixture(scope="module", params=TEMPLATES)
def committed(request: pytest.FixtureRequest) -> Iterator[tuple[str, ChatTemplate]]:
    text = (DATA / "templates" / f"{request.param}.jinja").read_text(encoding="utf-8")
    source = TemplateSource({"default": text}, SPECIAL_TOKENS)
    with ChatTemplate(source, clock=lambda: datetime(2025, 3, 9, 14, 5, 6)) as template:
        yield request.param, template


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("from_client", [False, True], ids=["uniform", "as clients send it"])
def test_a_conversation_renders_as_transformers_renders_it(
    committed: tuple[str, ChatTemplate], name: str, from_client: bool
) -> None:
    template_name, template = committed
    conversation, expected = CONVERSATIONS[name], EXPECTED[template_name][name]
    messages = as_clients_send(conversation["messages"]) if from_client else conversation["messages"]
    options = {
        "tools": TOOLS.get(conversation.get("tools")),
        "add_generation_prompt": conversation.get("add_generation_prompt", True),
        "variables": conversation.get("variables"),
    }
    if "text" in expected:
        assert template.render(messages, **options).text == expected["text"]
    else:
        with pytest.raises(TemplateError) as raised:
            template.render(messages, **options)
        assert str(raised.value) == f"the model: the chat template refuses this conversation: {expected['error']}"


def test_content_in_parts_is_joined_by_line_breaks_where_the_template_reads_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render("{{ messages[0].content + '!' }}", [{"role": "user", "content": parts}]) == "one\ntwo!"


def test_content_in_parts_reaches_a_template_that_reads_parts_unchanged() -> None:
    text = "{% for part in messages[0].content %}{{ part.text if part is mapping else part }}+{% endfor %}"
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render(text, [{"role": "user", "content": parts}]) == "one+two+"


def test_no_tools_and_an_empty_list_of_tools_are_the_same() -> None:
    assert render("{{ tools is none }}", tools=[]) == "True"


def test_thinking_is_switched_under_both_of_its_names() -> None:
    text = "{{ enable_thinking }} {{ thinking }}"
    assert render(text, variables={"enable_thinking": False}) == "False False"
    assert render(text, variables={"thinking": True}) == "True True"
    assert render(text, variables={"thinking": True, "enable_thinking": False}) == "False True"


def test_keeping_thoughts_is_switched_under_both_of_its_names() -> None:
    assert render("{{ clear_thinking }}", variables={"preserve_thinking": True}) == "False"


def test_other_variables_reach_the_template_as_they_are() -> None:
    variables = {"reasoning_effort": "high", "custom": {"list": [1, None, 2.5]}}
    assert render("{{ reasoning_effort }} {{ custom | tojson }}", variables=variables) == (
        'high {"list": [1, null, 2.5]}'
    )


def test_a_variable_may_not_take_the_place_of_the_messages() -> None:
    with pytest.raises(RequestError, match="may not be named messages: rename"):
        render("", variables={"messages": []})


def test_a_variable_may_have_any_other_name() -> None:
    assert render("{{ template }} {{ self_ }}", variables={"template": 1, "self_": 2, "self": 3}) == "1 2"


def test_what_cannot_be_json_is_a_clear_error() -> None:
    with pytest.raises(RequestError, match=r"cannot be written as JSON: .*object"):
        render("", variables={"x": object()})
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(RequestError, match="cannot be written as JSON: maximum recursion depth"):
        render("", variables={"x": nested})


def test_a_missing_special_token_is_empty_text() -> None:
    with ChatTemplate(TemplateSource({"default": "[{{ bos_token + 'x' + eos_token }}]"})) as template:
        assert template.render(HI).text == "[x]"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("one\n{% if x %}", "is broken in line 2: Unexpected end of template"),
        ("one\n{{ x | no_such_filter }}", "is broken in line 2: No filter named 'no_such_filter'"),
        ("one\ntwo\n{{ 1 + 'a' }}", "failed in line 3: unsupported operand"),
        ("{{ a.b.c }}", "failed in line 1: 'a' is undefined"),
        ("{{ raise_exception('no\\n\x1b[31m way') }}", "refuses this conversation: no  [31m way"),
    ],
)
def test_a_template_that_fails_says_why_and_where_in_one_line(text: str, error: str) -> None:
    with pytest.raises(TemplateError) as raised:
        render(text)
    assert f"the model: the chat template {error}" in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_very_long_reason_is_cut() -> None:
    with pytest.raises(TemplateError) as raised:
        render("{{ raise_exception('x' * 100000) }}")
    assert len(str(raised.value)) < 1000


def test_the_files_template_and_special_tokens_are_used() -> None:
    file = vocabulary(control=("<s>", "</s>", "<unk>"), bos_token_id=1, eos_token_id=2, unknown_token_id=3)
    file.metadata["tokenizer.chat_template"] = "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}"
    with ChatTemplate.from_gguf(file) as template:
        assert template.name == "file"
        assert template.stop == ()
        assert template.render(HI).text == "<s></s><unk>"


def test_a_file_with_a_template_for_tools_uses_it_when_there_are_tools() -> None:
    file = vocabulary()
    file.metadata["tokenizer.chat_template"] = "plain"
    file.metadata["tokenizer.chat_template.tool_use"] = "with tools"
    file.metadata["tokenizer.chat_template.rag"] = "rag"
    with ChatTemplate.from_gguf(file) as template:
        assert (template.name, template.render(HI).text) == ("file", "plain")
        assert template.name_for(with_tools=True) == "file:tool_use"
        assert template.render(HI, tools=TOOLS["weather and time"]).text == "with tools"


def test_the_only_named_template_serves_all_conversations() -> None:
    file = vocabulary()
    file.metadata["tokenizer.chat_template.rag"] = "rag"
    with ChatTemplate.from_gguf(file) as template:
        assert (template.name, template.render(HI).text) == ("file:rag", "rag")


def test_several_named_templates_without_a_default_are_named_in_the_error() -> None:
    file = vocabulary()
    file.metadata |= {"tokenizer.chat_template.rag": "r", "tokenizer.chat_template.cite": "c"}
    with ChatTemplate.from_gguf(file) as template, pytest.raises(TemplateError, match=r"\(cite, rag\)"):
        template.render(HI)


def test_a_template_that_is_no_text_is_an_error_of_the_file() -> None:
    with pytest.raises(ModelFileError, match=r"model.gguf: tokenizer.chat_template must be a text: int"):
        ChatTemplate.from_gguf(File({"tokenizer.chat_template": 7}))


def test_a_special_token_outside_the_vocabulary_is_an_error_of_the_file() -> None:
    with pytest.raises(ModelFileError, match=r"bos_token_id is no id of its 1 tokens: 5"):
        ChatTemplate.from_gguf(vocabulary(bos_token_id=5))


FALLBACK_CONVERSATION = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "U"},
    {"role": "assistant", "content": "A"},
    {"role": "user", "content": "V"},
]


@pytest.mark.parametrize(
    ("tokens", "name", "text"),
    [
        (
            ("<|im_start|>", "<|im_end|>"),
            "chatml",
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
            "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "llama-3",
            "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
            "deepseek",
            "S<\uff5cUser\uff5c>U<\uff5cAssistant\uff5c>A</s><\uff5cUser\uff5c>V<\uff5cAssistant\uff5c>",
        ),
        (
            ("<start_of_turn>", "<end_of_turn>"),
            "gemma",
            "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
            "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
        ),
        (("[INST]", "[/INST]"), "mistral", "[INST] S\n\nU [/INST] A</s>[INST] V [/INST]"),
        ((), "plain", "S\n\nUser: U\nAssistant: A\nUser: V\nAssistant:"),
    ],
)
@pytest.mark.parametrize("kind", ["control", "user_defined"])
def test_a_file_without_a_template_gets_the_fallback_that_its_tokens_show(
    tokens: tuple[str, ...], name: str, text: str, kind: str
) -> None:
    file = vocabulary(**{kind: ("<s>", "</s>", *tokens)}, bos_token_id=1, eos_token_id=2)
    with ChatTemplate.from_gguf(file) as template:
        assert template.name == f"fallback:{name}"
        assert template.stop == (("\nUser:",) if name == "plain" else ())
        assert template.render(FALLBACK_CONVERSATION).text == text


def test_a_fallback_begins_with_bos_where_the_file_says_so() -> None:
    file = vocabulary(control=("<s>",), bos_token_id=1, add_bos_token=True)
    with ChatTemplate.from_gguf(file) as template:
        assert template.render(HI).text == "<s>User: hi\nAssistant:"


def test_a_fallback_refuses_tools_rather_than_dropping_them() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    with ChatTemplate.from_gguf(vocabulary()) as template:
        for options in ({"tools": TOOLS["weather and time"]}, {}):
            messages = HI if options else [*HI, {"role": "assistant", "tool_calls": [call]}]
            with pytest.raises(RequestError, match=r"model.gguf has no chat template, and .* plain knows no tools"):
                template.render(messages, **options)
