"""How a model writes reasoning and tool calls, told from the text of its chat template.

A template spells the tags that the model was trained on, so it is a better witness than the model's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ktdesk_engine.chat.parsing import json_calls, markup_calls
from ktdesk_engine.chat.parsing.calls import Calls
from ktdesk_engine.chat.parsing.parts import Steps

ReadCall = Callable[[Calls], Steps[bool]]


@dataclass(frozen=True)
class CallStyle:
    """How tool calls are written."""

    name: str
    openings: tuple[tuple[str, ReadCall], ...] = ()
    """A tag, and what reads on after it."""
    ends_reasoning: bool = False
    """The tag also ends reasoning that was not closed: no text contains it by accident."""
    at_start: ReadCall | None = None
    """What may read a call that an answer begins with, without any tag."""


@dataclass(frozen=True)
class AnswerStyle:
    reasoning: tuple[str, str] | None = None
    """The tags around it."""
    calls: CallStyle | None = None
    """None: the template knows no tools."""
    is_harmony: bool = False
    """Reasoning, content and calls are messages on channels."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Control tokens among these must be spelled in the text that is parsed."""
        if self.is_harmony:
            return HARMONY_TAGS
        return (*(self.reasoning or ()), *(CALL_TAGS[self.calls.name] if self.calls else ()))


def _read_xml_after_call(calls: Calls) -> Steps[bool]:
    """`<tool_call>`, then a function as Qwen3-Coder writes it, or an object as its older siblings do."""
    yield from calls.source.spaces()
    if (yield from calls.source.peek()) == "{":
        return (yield from json_calls.read_hermes(calls))
    return (yield from markup_calls.read_group(calls, markup_calls.QWEN3_CODER, "</tool_call>"))


def _read_xml_function(calls: Calls) -> Steps[bool]:
    """A function whose `<tool_call>` was forgotten."""
    is_call = yield from markup_calls.read_call(calls, markup_calls.QWEN3_CODER)
    if is_call:
        yield from calls.source.spaces()
        yield from calls.source.literal("</tool_call>")
    return is_call


HARMONY = CallStyle("harmony")
HERMES = CallStyle("hermes", (("<tool_call>", json_calls.read_hermes),))
QWEN3_CODER = CallStyle("qwen3-coder", (("<tool_call>", _read_xml_after_call), ("<function=", _read_xml_function)))
GLM = CallStyle("glm", (("<tool_call>", markup_calls.read_glm),))
MINIMAX = CallStyle(
    "minimax",
    (
        (
            "<minimax:tool_call>",
            partial(markup_calls.read_group, markup=markup_calls.MINIMAX, end="</minimax:tool_call>"),
        ),
    ),
)
DEEPSEEK = CallStyle("deepseek", (("<｜tool▁calls▁begin｜>", json_calls.read_deepseek),), ends_reasoning=True)
DEEPSEEK_FENCED = replace(DEEPSEEK, name="deepseek-fenced")
DEEPSEEK_DSML = CallStyle(
    "deepseek-dsml",
    (
        (
            "<｜DSML｜function_calls>",
            partial(markup_calls.read_group, markup=markup_calls.DEEPSEEK_DSML, end="</｜DSML｜function_calls>"),
        ),
    ),
    ends_reasoning=True,
)
KIMI = CallStyle("kimi", (("<|tool_calls_section_begin|>", json_calls.read_kimi),), ends_reasoning=True)
MISTRAL = CallStyle("mistral", (("[TOOL_CALLS]", json_calls.read_mistral),), ends_reasoning=True)
PLAIN = CallStyle("plain", at_start=json_calls.read_plain)

CALL_MARKERS: tuple[tuple[tuple[str, ...], CallStyle], ...] = (
    (("<|tool_calls_section_begin|>",), KIMI),
    (("｜DSML｜",), DEEPSEEK_DSML),
    (("<｜tool▁calls▁begin｜>", "```json"), DEEPSEEK_FENCED),
    (("<｜tool▁calls▁begin｜>",), DEEPSEEK),
    (("<minimax:tool_call>",), MINIMAX),
    (("<arg_key>",), GLM),
    (("<function=", "<parameter="), QWEN3_CODER),
    (("<tool_call>",), HERMES),
    (("[TOOL_CALLS]",), MISTRAL),
    (("tools",), PLAIN),
)
"""The first counts whose markers are all in the template."""
REASONING_MARKERS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
HARMONY_TAGS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
DEEPSEEK_TAGS = (
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
    *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
)
CALL_TAGS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "qwen3-coder": ("<tool_call>", "</tool_call>"),
    "glm": ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "minimax": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "deepseek": DEEPSEEK_TAGS,
    "deepseek-fenced": DEEPSEEK_TAGS,
    "deepseek-dsml": ("｜DSML｜",),
    "kimi": (
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    "plain": ("<|python_tag|>",),
}


def answer_style(template: str) -> AnswerStyle:
    """template: the Jinja text of the chat template that rendered the prompt."""
    if "<|channel|>" in template and "<|message|>" in template:
        return AnswerStyle(calls=HARMONY if "tools" in template else None, is_harmony=True)
    reasoning = next((pair for pair in REASONING_MARKERS if pair[1] in template), None)
    calls = next((style for markers, style in CALL_MARKERS if all(m in template for m in markers)), None)
    return AnswerStyle(reasoning, calls)
