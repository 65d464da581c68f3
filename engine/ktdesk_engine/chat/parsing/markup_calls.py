"""Tool calls whose arguments the model writes between tags, each value as bare text: Qwen3-Coder, MiniMax,
DeepSeek V3.2 and GLM. They come out as JSON, by the schema of the tool."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ktdesk_engine.chat.parsing.calls import Calls
from ktdesk_engine.chat.parsing.parts import Steps


@dataclass(frozen=True)
class Markup:
    """The tags of a family. A header is what stands between its two: a name, maybe quoted, maybe with more."""

    call: tuple[str, str]
    call_end: str
    parameter: tuple[str, str]
    value: str
    """Between the parameter's header and its value."""
    value_end: str
    has_newlines: bool = False
    """One line break before and one after a value are not part of it."""


QWEN3_CODER = Markup(("<function=", ">"), "</function>", ("<parameter=", ">"), "", "</parameter>", has_newlines=True)
MINIMAX = Markup(('<invoke name="', ">"), "</invoke>", ('<parameter name="', ">"), "", "</parameter>")
DEEPSEEK_DSML = Markup(
    ('<｜DSML｜invoke name="', ">"), "</｜DSML｜invoke>", ('<｜DSML｜parameter name="', ">"), "", "</｜DSML｜parameter>"
)
GLM_ARGUMENT = Markup(("", ""), "</tool_call>", ("<arg_key>", "</arg_key>"), "<arg_value>", "</arg_value>")


def read_group(calls: Calls, markup: Markup, end: str) -> Steps[bool]:
    """Calls one after another, and the tag that ends the group."""
    source = calls.source
    num_before = calls.count
    yield from source.spaces()
    while (yield from source.literal(markup.call[0])):
        if not (yield from read_call(calls, markup)):
            return calls.count > num_before
        yield from source.spaces()
    yield from source.literal(end)
    return calls.count > num_before


def read_call(calls: Calls, markup: Markup) -> Steps[bool]:
    """From a call's name on, to its end."""
    header = yield from calls.source.header(markup.call[1])
    if not header:
        return False
    yield from _read_arguments(calls, markup, header.partition('"')[0])
    return True


def read_glm(calls: Calls) -> Steps[bool]:
    """`<tool_call>NAME`, then pairs of `<arg_key>` and `<arg_value>`, then `</tool_call>`. A name ends with its line,
    or where the first pair or the end comes."""
    source = calls.source
    yield from source.spaces()
    name = ""
    while (character := (yield from source.peek())) and (character.isalnum() or character in "_-.:/"):
        name += character
        source.skip(1)
    yield from source.spaces()
    if not name or not (yield from _tag_follows(calls, (GLM_ARGUMENT.parameter[0], GLM_ARGUMENT.call_end))):
        return False
    yield from _read_arguments(calls, GLM_ARGUMENT, name)
    return True


def _tag_follows(calls: Calls, tags: tuple[str, ...]) -> Steps[bool]:
    """Whether one of tags comes next; it is not read."""
    for tag in tags:
        if (yield from calls.source.literal(tag)):
            calls.source.skip(-len(tag))
            return True
    return False


def _read_arguments(calls: Calls, markup: Markup, name: str) -> Steps[None]:
    """Parameters one after another, as the members of an object."""
    source = calls.source
    yield calls.begin(name)
    yield calls.arguments("{")
    separator = ""
    while True:
        yield from source.spaces()
        if not (yield from source.literal(markup.parameter[0])):
            break
        header = yield from source.header(markup.parameter[1])
        if header is None:
            return
        key, _, attributes = header.partition('"')
        if markup.value:
            yield from source.spaces()
            yield from source.literal(markup.value)
        yield calls.arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
        is_text = calls.tools.is_text(name, key) or 'string="true"' in attributes
        if not (yield from (_stream_text(calls, markup) if is_text else _read_bare(calls, markup, name, key))):
            return
        separator = ", "
    if (yield from source.literal(markup.call_end)):
        yield calls.arguments("}")


def _stream_text(calls: Calls, markup: Markup) -> Steps[bool]:
    """A text, passed on while it comes. False where the answer ends before it does."""
    source = calls.source
    if markup.has_newlines:
        yield from source.literal("\n")
    yield calls.arguments('"')
    ends = [f"\n{markup.value_end}"] if markup.has_newlines else []
    while True:
        text, tag = yield from source.until([*ends, markup.value_end])
        if text:
            yield calls.arguments(json.dumps(text, ensure_ascii=False)[1:-1])
        elif tag:
            yield calls.arguments('"')
            return True
        else:
            return False


def _read_bare(calls: Calls, markup: Markup, name: str, key: str) -> Steps[bool]:
    """A value whose kind shows when it is whole. False where the answer ends before it does."""
    pieces: list[str] = []
    while True:
        text, tag = yield from calls.source.until([markup.value_end])
        if tag:
            break
        if not text:
            return False
        pieces.append(text)
    value = "".join(pieces)
    if markup.has_newlines:
        value = value.removeprefix("\n").removesuffix("\n")
    yield calls.arguments(calls.tools.value_json(name, key, value))
    return True
