from __future__ import annotations

from typing import Any

import pytest

from ktdesk_engine.chat.messages import check_messages, check_tools
from ktdesk_engine.chat.source import TemplateSource
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.errors import RequestError

KNOWN = "system, developer, user, assistant, tool, function"


def called(**function: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}]


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], "the conversation has no messages: give at least one"),
        (5, "the conversation must be a list of messages: 5"),
        ("hi", "the conversation must be a list of messages: 'hi'"),
        (["hi"], "messages[0] must be a mapping with role and content: 'hi'"),
        (
            [{"content": "hi"}],
            f"messages[0] has no role: give one of {KNOWN}",
        ),
        (
            [{"role": "user", "content": ""}, {"role": "usr", "content": "hi"}],
            f"messages[1].role is unknown: 'usr'; known are {KNOWN}",
        ),
        (
            [{"role": 7, "content": "hi"}],
            f"messages[0].role is unknown: 7; known are {KNOWN}",
        ),
        ([{"role": "user"}], "messages[0] has no content: give a text, which may be empty"),
        ([{"role": "user", "content": 7}], "messages[0].content must be a text or a list of text parts: 7"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0] must be a text part: 7"),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}],
                }
            ],
            "messages[0].content[1] is of type 'image_url'; only text parts can be read",
        ),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            "messages[0].content[0].text must be a text: None",
        ),
        ([{"role": "assistant", "tool_calls": "f()"}], "messages[0].tool_calls must be a list: 'f()'"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
            "messages[0].tool_calls[0] has no function name: {'id': '1'}",
        ),
        (
            called(name="f", arguments="[1]"),
            "messages[0].tool_calls[0].arguments of f must be a JSON object: [1]",
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_named_with_its_value(messages: Any, error: str) -> None:
    with pytest.raises(RequestError) as raised:
        check_messages(messages)
    assert str(raised.value) == error


def test_arguments_that_are_no_json_say_where_they_break() -> None:
    with pytest.raises(RequestError, match=r"tool_calls\[0\].arguments of f are not valid JSON \(.*char 5\)"):
        check_messages(called(name="f", arguments='{"a": }'.replace(" ", "")))


@pytest.mark.parametrize("arguments", [None, "", " ", "{}", {}])
def test_no_arguments_are_an_empty_mapping(arguments: Any) -> None:
    checked = check_messages(called(name="f", arguments=arguments))
    assert checked[0]["tool_calls"] == [{"type": "function", "id": "1", "function": {"name": "f", "arguments": {}}}]


def test_none_means_absent_and_content_is_always_there() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": None, "name": None}
    assert check_messages([message]) == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_there_under_the_names_that_templates_read(key: str) -> None:
    checked = check_messages([{"role": "assistant", "content": "4", key: "2+2"}])[0]
    assert checked["reasoning_content"] == checked["thinking"] == "2+2"


def test_the_callers_messages_are_left_as_they_were() -> None:
    messages = called(name="f", arguments='{"a": 1}')
    check_messages(messages)
    assert messages == called(name="f", arguments='{"a": 1}')


def test_a_role_that_the_template_names_is_accepted() -> None:
    messages = [{"role": "ipython", "content": "4"}]
    assert check_messages(messages, more_roles="{% if role == 'ipython' %}") == messages
    with pytest.raises(RequestError):
        check_messages(messages, more_roles="{# ipython #}")


def test_a_developer_is_the_system_for_templates_that_do_not_know_the_role() -> None:
    messages = [{"role": "developer", "content": "x"}]
    for text, role in (
        ("{{ messages[0].role }}", "system"),
        ("{{ messages[0].role }}{# developer #}", "developer"),
    ):
        with ChatTemplate(TemplateSource({"default": text})) as template:
            assert template.render(messages).text == role


@pytest.mark.parametrize("tool", [{}, {"function": {}}, "f", {"type": "function", "function": "f"}])
def test_a_tool_without_a_function_name_is_refused(tool: Any) -> None:
    with pytest.raises(RequestError, match=r"tools\[0\] must have a function with a name"):
        check_tools([tool])


def test_tools_and_variables_of_another_type_are_refused() -> None:
    with pytest.raises(RequestError, match="tools must be a list of functions: 5"):
        check_tools(5)  # type: ignore[arg-type]
    with (
        ChatTemplate(TemplateSource({"default": "x"})) as template,
        pytest.raises(RequestError, match="a mapping from names to values: 'x'"),
    ):
        template.render([{"role": "user", "content": "x"}], variables="x")  # type: ignore[arg-type]


def test_a_content_that_is_nested_too_deep_is_named_without_its_value() -> None:
    content: list[Any] = []
    for _ in range(100_000):
        content = [content]
    with pytest.raises(RequestError, match=r"content\[0\] must be a text part: a list that is nested too deep"):
        check_messages([{"role": "user", "content": content}])
