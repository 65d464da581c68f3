"""Grammars for whole answers, in the Lark of llguidance: reasoning first, then a text, a JSON value, or tool calls.

Tags that are control tokens of the model are written as such; the rest of a tag is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ktdesk_engine.chat.parsing import markup_calls
from ktdesk_engine.chat.parsing.markup_calls import Markup
from ktdesk_engine.chat.parsing.style import AnswerStyle
from ktdesk_engine.errors import RequestError
from ktdesk_engine.guidance import Grammar, schema_text

ANY_OBJECT = {"type": "object"}
TEXT = r"TEXT: /(.|\n)*/"
SPACE = r"SPACE: /[ \n]{0,4}/"

OPENING = {
    **dict.fromkeys(("hermes", "qwen3-coder", "glm"), "<tool_call>"),
    **dict.fromkeys(("deepseek", "deepseek-fenced"), "<｜tool▁calls▁begin｜>"),
    "deepseek-dsml": "<｜DSML｜function_calls>",
    "kimi": "<|tool_calls_section_begin|>",
    "minimax": "<minimax:tool_call>",
}
"""The tag that says that a call comes. plain and harmony have none: a call is a message of its own."""
CLOSING = {
    **dict.fromkeys(("deepseek", "deepseek-fenced"), "<｜tool▁calls▁end｜>"),
    "deepseek-dsml": "\n</｜DSML｜function_calls>",
    "kimi": "<|tool_calls_section_end|>",
    "minimax": "\n</minimax:tool_call>",
}
"""After the last call, in families whose opening tag is for all calls. In others it comes before each."""
AROUND_JSON = {
    "hermes": ('\n{"name": "%s", "arguments": ', "}\n</tool_call>"),
    "plain": ('{"name": "%s", "parameters": ', "}"),
    "deepseek": ("<｜tool▁call▁begin｜>%s<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    "deepseek-fenced": ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n", "\n```<｜tool▁call▁end｜>"),
    "kimi": ("<|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    "harmony": ("<|channel|>commentary to=functions.%s <|constrain|>json<|message|>", ""),
}
"""What stands before and after the arguments of a call, with its name."""
MARKUP = {
    "qwen3-coder": (markup_calls.QWEN3_CODER, "\n", "\n</tool_call>"),
    "glm": (markup_calls.GLM_ARGUMENT, "", ""),
    "minimax": (markup_calls.MINIMAX, "\n", ""),
    "deepseek-dsml": (markup_calls.DEEPSEEK_DSML, "\n", ""),
}
"""The tags, and what stands before and after a call."""

Choice = Literal["auto", "required"]


@dataclass(frozen=True)
class ToolRule:
    """One tool that may be called."""

    name: str
    schema: Mapping[str, Any]
    """Of its parameters."""
    is_strict: bool = False
    """Whether the arguments must follow the schema, or only be an object."""


class AnswerGrammar:
    """Builds one grammar, for one style of answering."""

    def __init__(
        self,
        style: AnswerStyle,
        control_ids: Mapping[str, int],
        *,
        opens_reasoning: bool,
        may_reason: bool = True,
    ) -> None:
        """control_ids: those of the style's tags that are control tokens. opens_reasoning: the prompt did."""
        self._style = style
        self._control_ids = control_ids
        self._opens_reasoning = opens_reasoning
        self._may_reason = may_reason
        self._rules: list[str] = []

    def json_answer(self, schema: Mapping[str, Any] | bool) -> Grammar:
        """A JSON value, after reasoning if the model reasons."""
        body = f"%json {schema_text(schema)}"
        return self._grammar(f"{self._final} {body}")

    def tool_calls(self, tools: Sequence[ToolRule], choice: Choice, *, parallel: bool) -> Grammar:
        """Calls of these tools. auto: or text, or first text and then calls."""
        name = self._style.calls.name if self._style.calls else "none"
        if name not in AROUND_JSON and name not in MARKUP:
            raise RequestError(
                f"tool calls of this model's kind ({name}) cannot be forced or made strict: "
                "use tool_choice auto without strict"
            )
        calls = [self._call(name, tool) for tool in tools]
        self._rules.append(f"call: {' | '.join(calls)}")
        opening, rest = OPENING.get(name, ""), self._calls(name, parallel=parallel)
        if choice == "required":
            return self._grammar(f"{self._literal(opening)} {rest}")
        if name == "plain":
            return self._grammar(f"({rest} | NO_OBJECT)", r"NO_OBJECT: /[^{ \n](.|\n)*/")
        if name == "harmony":
            return self._grammar(f"({rest} | {self._final} TEXT)")
        return self._grammar(f"(TEXT | {self._up_to(opening)} {rest})")

    @property
    def _final(self) -> str:
        return self._literal("<|channel|>final<|message|>" if self._style.is_harmony else "")

    def _grammar(self, body: str, *more_rules: str) -> Grammar:
        start = f"start: {self._reasoning()} {body}"
        return Grammar("lark", "\n".join([start, *self._rules, *more_rules, TEXT, SPACE, ""]))

    def _reasoning(self) -> str:
        """What may, or must, come first."""
        if not self._may_reason and not self._opens_reasoning:
            return ""
        if self._style.is_harmony:
            analysis = f"{self._literal('<|channel|>analysis<|message|>')} {self._up_to('<|end|>')}"
            return f"({analysis} {self._literal('<|start|>assistant')})?"
        if self._style.reasoning is None:
            return ""
        opening, closing = self._style.reasoning
        if self._opens_reasoning:
            return f"{self._up_to(closing)} SPACE"
        return f"({self._literal(opening)} {self._up_to(closing)} SPACE)?"

    def _calls(self, name: str, *, parallel: bool) -> str:
        """Those after the opening tag, and what closes them."""
        if not parallel or name in ("harmony", "plain"):
            return f"call {self._literal(CLOSING.get(name, ''))}"
        if name in CLOSING:
            return f"call (SPACE call)* {self._literal(CLOSING[name])}"
        return f"call (SPACE {self._literal(OPENING[name])} call)*"

    def _call(self, name: str, tool: ToolRule) -> str:
        """One call of one tool, as a rule whose name is returned."""
        if name in AROUND_JSON:
            before, after = AROUND_JSON[name]
            schema = tool.schema if tool.is_strict else ANY_OBJECT
            body = f"{self._literal(before % tool.name)} %json {schema_text(schema)} {self._literal(after)}"
        else:
            markup, before, after = MARKUP[name]
            head = f"{before}{markup.call[0]}{tool.name}{_header_end(markup, markup.call)}\n"
            parameters = " ".join(self._parameters(name, markup, tool))
            body = f"{self._literal(head)} {parameters} {self._literal(markup.call_end + after)}"
        return self._rule("call", body)

    def _parameters(self, name: str, markup: Markup, tool: ToolRule) -> list[str]:
        """All of them in the order of the schema; those that need not be given may be left out."""
        properties = tool.schema.get("properties") or {}
        required = tool.schema.get("required") or [] if tool.is_strict else []
        rules = [self._parameter(name, markup, key, schema) for key, schema in properties.items()]
        return [rule if key in required else f"{rule}?" for key, rule in zip(properties, rules, strict=True)]

    def _parameter(self, name: str, markup: Markup, key: str, schema: Mapping[str, Any]) -> str:
        line = "\n" if markup.has_newlines else ""
        is_text = schema.get("type") == "string"
        attribute = f'" string="{str(is_text).lower()}' if name == "deepseek-dsml" else ""
        head = f"{markup.parameter[0]}{key}{attribute}{_header_end(markup, markup.parameter)}{markup.value}{line}"
        end = f"{line}{markup.value_end}"
        if is_text and "enum" not in schema:
            return self._rule("parameter", f"{self._literal(head)} {self._up_to(end)} {self._literal(chr(10))}")
        if is_text:
            value = "(" + " | ".join(json.dumps(choice) for choice in schema["enum"]) + ")"
        else:
            value = f"%json {schema_text(schema)}"
        return self._rule("parameter", f"{self._literal(head)} {value} {self._literal(end + chr(10))}")

    def _up_to(self, tag: str) -> str:
        """Any text, and the tag."""
        if tag in self._control_ids:
            return f"TEXT {self._literal(tag)}"
        return self._rule("up_to", f"TEXT {json.dumps(tag)}", "[lazy]")

    def _rule(self, kind: str, body: str, flags: str = "") -> str:
        name = f"{kind}_{len(self._rules)}"
        self._rules.append(f"{name}{flags}: {body}")
        return name

    def _literal(self, text: str) -> str:
        """A text whose control tokens stand as such."""
        if not text:
            return ""
        tags = sorted(self._control_ids, key=len, reverse=True)
        pieces = re.split("(" + "|".join(map(re.escape, tags)) + ")", text) if tags else [text]
        ids = self._control_ids
        return " ".join(f"<[{ids[piece]}]>" if piece in ids else json.dumps(piece) for piece in pieces if piece)


def _header_end(markup: Markup, around: tuple[str, str]) -> str:
    """What follows a name: it is quoted where the tag before it says so."""
    return ('"' if around[0].endswith('"') else "") + around[1]
