"""Answers of each family, cut anywhere: the same reasoning, content and calls come out, and no piece of a tag."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktdesk_engine.chat.parsing import style as styles
from ktdesk_engine.chat.parsing.answer_parser import AnswerParser
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Content, Part, Reasoning, merged
from ktdesk_engine.chat.parsing.style import AnswerStyle
from ktdesk_engine.chat.parsing.tools import OfferedTools

TOOLS = OfferedTools.from_definitions(
    [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer"},
                        "unit": {"enum": ["C", "F"]},
                        "place": {"type": "object"},
                        "note": {"type": ["string", "null"]},
                    },
                },
            },
        },
        {"type": "function", "function": {"name": "now"}},
    ]
)
THINK = ("<think>", "</think>")
STYLES = {
    **{
        calls.name: AnswerStyle(THINK, calls)
        for calls in (
            *(styles.HERMES, styles.QWEN3_CODER, styles.GLM, styles.MINIMAX, styles.DEEPSEEK),
            *(styles.DEEPSEEK_DSML, styles.KIMI, styles.MISTRAL, styles.PLAIN),
        )
    },
    "harmony": AnswerStyle(None, styles.HARMONY, is_harmony=True),
}


class Call(NamedTuple):
    name: str
    arguments: Any
    call_id: str | None = None


class Answer(NamedTuple):
    reasoning: str
    content: str
    calls: list[Call]


def parse(
    style: AnswerStyle,
    pieces: list[str],
    *,
    tools: OfferedTools | None = TOOLS,
    opens_reasoning: bool = False,
    is_cut: bool = False,
) -> list[Part]:
    parser = AnswerParser(style, tools, opens_reasoning=opens_reasoning)
    parts = [part for piece in pieces for part in parser.push(piece)]
    return merged([*parts, *parser.finish(is_cut=is_cut)])


def folded(parts: list[Part]) -> Answer:
    starts = [part for part in parts if isinstance(part, CallStart)]
    calls = [
        Call(
            start.name,
            json.loads("".join(p.text for p in parts if isinstance(p, CallArguments) and p.index == start.index)),
            start.call_id,
        )
        for start in starts
    ]
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    return Answer(reasoning, "".join(part.text for part in parts if isinstance(part, Content)), calls)


PARIS = Call("weather", {"city": 'the "City" of\n<light>', "days": 3})
NOW = Call("now", {})
JSON = json.dumps(PARIS.arguments)
CITY = PARIS.arguments["city"]

EXAMPLES = [
    pytest.param(
        "hermes",
        '<think>\na < b\n</think>\n\nWait: <tool_call>\n{"name": "weather", "arguments": ' + JSON + "}\n</tool_call>\n"
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        Answer("a < b", "Wait:", [PARIS, NOW]),
        id="hermes",
    ),
    pytest.param(
        "hermes",
        '<tool_call>{"arguments": ' + JSON + ', "name": "weather"}</tool_call>',
        Answer("", "", [PARIS]),
        id="hermes-arguments-first",
    ),
    pytest.param(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": ' + json.dumps(JSON) + "}</tool_call>",
        Answer("", "", [PARIS]),
        id="hermes-arguments-as-a-string",
    ),
    pytest.param(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": {"city": "a\nb\tc"}}</tool_call> done',
        Answer("", "done", [Call("weather", {"city": "a\nb\tc"})]),
        id="hermes-raw-line-breaks",
    ),
    pytest.param(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": {"city": "</tool_call>"}}</tool_call>',
        Answer("", "", [Call("weather", {"city": "</tool_call>"})]),
        id="hermes-tag-in-a-string",
    ),
    pytest.param(
        "qwen3-coder",
        f"Look:\n<tool_call>\n<function=weather>\n<parameter=city>\n{CITY}\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        Answer("", "Look:", [PARIS, NOW]),
        id="qwen3-coder",
    ),
    pytest.param(
        "qwen3-coder",
        '<function=weather>\n<parameter=place>\n{"x": [1, 2]}\n</parameter>\n<parameter=note>\nnull\n</parameter>\n'
        "<parameter=unit>\nC\n</parameter>\n<parameter=other>\nTrue\n</parameter>\n</function>\n</tool_call>",
        Answer("", "", [Call("weather", {"place": {"x": [1, 2]}, "note": None, "unit": "C", "other": True})]),
        id="qwen3-coder-without-its-tag",
    ),
    pytest.param(
        "glm",
        "\n<think>hm</think>\nSure.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>" + CITY + "</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        Answer("hm", "Sure.", [PARIS, NOW]),
        id="glm-4.5",
    ),
    pytest.param(
        "glm",
        "<think></think><tool_call>weather<arg_key>city</arg_key><arg_value>" + CITY + "</arg_value>"
        "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>now</tool_call>",
        Answer("", "", [PARIS, NOW]),
        id="glm-4.7",
    ),
    pytest.param(
        "minimax",
        '<think>t</think>\n\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">'
        + CITY
        + "</parameter>"
        '\n<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
        Answer("t", "", [PARIS, NOW]),
        id="minimax",
    ),
    pytest.param(
        "deepseek",
        "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        + JSON
        + "\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        Answer("", "Let me see.", [PARIS, NOW]),
        id="deepseek-v3",
    ),
    pytest.param(
        "deepseek",
        "<think>so<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + JSON + "<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        Answer("so", "", [PARIS, NOW]),
        id="deepseek-v3.1-from-reasoning",
    ),
    pytest.param(
        "deepseek-dsml",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">'
        + CITY
        + ""
        '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        Answer("", "", [PARIS, NOW]),
        id="deepseek-v3.2",
    ),
    pytest.param(
        "kimi",
        "<think>x</think>On it.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        "<|tool_call_argument_begin|>" + JSON + "<|tool_call_end|><|tool_call_begin|>functions.now:1"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        Answer("x", "On it.", [PARIS._replace(call_id="functions.weather:0"), NOW._replace(call_id="functions.now:1")]),
        id="kimi",
    ),
    pytest.param(
        "mistral",
        '[TOOL_CALLS][{"name": "weather", "arguments": ' + JSON + '}, {"name": "now", "arguments": {}}]',
        Answer("", "", [PARIS, NOW]),
        id="mistral-list",
    ),
    pytest.param(
        "mistral",
        "Hm. [TOOL_CALLS]weather[ARGS]" + JSON + "[TOOL_CALLS]now[CALL_ID]9a[ARGS]{}",
        Answer("", "Hm.", [PARIS, NOW._replace(call_id="9a")]),
        id="mistral-names",
    ),
    pytest.param("plain", '{"name": "weather", "parameters": ' + JSON + "}", Answer("", "", [PARIS]), id="plain"),
    pytest.param(
        "plain",
        '<|python_tag|>[{"type": "function", "name": "weather", "parameters": ' + JSON + '}, {"name": "now"}]',
        Answer("", "", [PARIS, NOW]),
        id="plain-list",
    ),
    pytest.param(
        "harmony",
        "<|channel|>analysis<|message|>I must look.<|end|><|start|>assistant<|channel|>commentary<|message|>One moment."
        "<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" + JSON + ""
        "<|call|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}",
        Answer("I must look.", "One moment.", [PARIS, NOW]),
        id="harmony-calls",
    ),
    pytest.param(
        "harmony",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>The answer is < 3. ",
        Answer("hm", "The answer is < 3. ", []),
        id="harmony-final",
    ),
]


@pytest.mark.parametrize(("name", "text", "answer"), EXAMPLES)
def test_reasoning_content_and_calls_of_each_family(name: str, text: str, answer: Answer) -> None:
    assert folded(parse(STYLES[name], [text])) == answer


@pytest.mark.parametrize(("name", "text", "answer"), EXAMPLES)
def test_cut_between_any_two_characters_the_parts_are_the_same(name: str, text: str, answer: Answer) -> None:
    whole = parse(STYLES[name], [text])
    assert parse(STYLES[name], list(text)) == whole
    for cut in range(len(text)):
        assert parse(STYLES[name], [text[:cut], text[cut:]]) == whole


@pytest.mark.parametrize(("name", "text", "answer"), EXAMPLES)
def test_a_cut_answer_shows_no_piece_of_a_tag_and_nothing_that_the_whole_one_does_not(
    name: str, text: str, answer: Answer
) -> None:
    for end in range(len(text)):
        parts = parse(STYLES[name], list(text[:end]), is_cut=True)
        content = "".join(part.text for part in parts if isinstance(part, Content))
        reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
        assert answer.content.startswith(content.rstrip())
        assert answer.reasoning.startswith(reasoning.rstrip())
        assert [p.name for p in parts if isinstance(p, CallStart)] == [
            call.name for call in answer.calls[: sum(isinstance(p, CallStart) for p in parts)]
        ]


FRAGMENTS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=a>"),
    *("</parameter>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<minimax:tool_call>", "</invoke>"),
    *('<invoke name="now">', '<parameter name="city">', "</minimax:tool_call>", "<｜tool▁calls▁begin｜>", "now"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<|tool_calls_section_begin|>", "[TOOL_CALLS]"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "functions.now:0", "[ARGS]", '{"name": "now"', "weather"),
    *(', "arguments": ', "{}", "}", "]", "[", '"', "\\", "{", "1", ",", "\n", " ", "<", "é", "```json\n", "null", "<|"),
    *("<|start|>", "assistant", "<|channel|>", "final", "analysis", "<|message|>", "<|end|>", " to=functions.now"),
]


@given(st.sampled_from(sorted(STYLES)), st.lists(st.sampled_from(FRAGMENTS), max_size=14), st.data())
def test_whatever_comes_and_however_it_is_cut_the_parts_are_the_same(
    name: str, fragments: list[str], data: st.DataObject
) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    is_cut, opens = data.draw(st.booleans()), name != "harmony" and data.draw(st.booleans())
    whole = parse(STYLES[name], [text], is_cut=is_cut, opens_reasoning=opens)
    assert parse(STYLES[name], pieces, is_cut=is_cut, opens_reasoning=opens) == whole
    assert parse(STYLES[name], list(text), is_cut=is_cut, opens_reasoning=opens) == whole


@given(st.text("<tool_cal>{}\"'abc \n/|", max_size=60))
def test_text_that_only_looks_like_a_tag_comes_through(text: str) -> None:
    style = AnswerStyle(None, styles.HERMES)
    expected = [] if not text else [Content(text)]
    if '"name"' not in text:
        assert parse(style, list(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a <tool_call> is a tag",
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "weather", "arguments"',
        "<tool_",
        "<tool_call>",
    ],
)
def test_what_turns_out_to_be_no_call_is_text(text: str) -> None:
    assert parse(AnswerStyle(THINK, styles.HERMES), list(text)) == [Content(text)]


def test_without_tools_on_offer_a_call_is_text() -> None:
    text = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parse(STYLES["hermes"], list(text), tools=None) == [Content(text)]


def test_plain_json_that_names_no_tool_on_offer_is_text() -> None:
    text = '{"name": "Bob", "parameters": {"age": 3}}'
    assert parse(STYLES["plain"], list(text)) == [Content(text)]


def test_a_prompt_that_opens_reasoning_is_gone_on_with() -> None:
    parts = parse(STYLES["hermes"], ["I th", "ink.\n</thi", "nk>\n\nYes. "], opens_reasoning=True)
    assert parts == [Reasoning("I think."), Content("Yes. ")]


def test_a_thinking_tag_in_the_middle_of_an_answer_is_text() -> None:
    assert parse(STYLES["hermes"], ["Write <think> first."]) == [Content("Write <think> first.")]


def test_text_is_passed_on_as_soon_as_it_is_sure() -> None:
    parser = AnswerParser(STYLES["hermes"], TOOLS)
    assert parser.push("Hello") == [Content("Hello")]
    assert parser.push(" <tool") == []
    assert parser.push("box> ") == [Content(" <toolbox>")]
    assert parser.push('<tool_call>{"name": "weather", "arguments": {"ci') == [
        CallStart(0, "weather"),
        CallArguments(0, '{"ci'),
    ]
    assert parser.push('ty": "Pa') == [CallArguments(0, 'ty": "Pa')]


def test_a_text_argument_between_tags_is_passed_on_while_it_comes() -> None:
    parser = AnswerParser(STYLES["qwen3-coder"], TOOLS)
    parser.push("<tool_call><function=weather><parameter=city>\nNew ")
    assert parser.push('York "NY"') == [CallArguments(0, 'York \\"NY\\"')]
