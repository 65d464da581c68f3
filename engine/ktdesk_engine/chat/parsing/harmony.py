"""The answers of gpt-oss: messages on channels.

`<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`; a tool call is a message
`to=functions.NAME`. The prompt ends with `<|start|>assistant`, so an answer begins inside of a header.
"""

from __future__ import annotations

import re

from ktdesk_engine.chat.parsing.calls import Calls
from ktdesk_engine.chat.parsing.json_reading import stream_value
from ktdesk_engine.chat.parsing.parts import Content, Reasoning, Steps
from ktdesk_engine.chat.parsing.prose import Prose

ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
HEADER_TAGS = ("<|message|>", *ENDS)
RECIPIENT = re.compile(r"to=([^\s<]+)")
CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
FUNCTIONS = "functions."


def read_harmony(calls: Calls, *, with_tools: bool) -> Steps[None]:
    """A whole answer, message by message."""
    source = calls.source
    if not (yield from _begins_with_header(calls)):
        yield from _read_text(calls, Prose(Content, strip_start=False))
    while (yield from source.peek()):
        header = yield from _read_header(calls)
        if header is not None:
            yield from _read_message(calls, header, with_tools=with_tools)


def _begins_with_header(calls: Calls) -> Steps[bool]:
    """Without one, what comes is said to the user."""
    source = calls.source
    source.mark()
    yield from source.spaces()
    is_header = (yield from source.literal("<|channel|>")) or (yield from source.literal("to="))
    source.rewind()
    return is_header


def _read_header(calls: Calls) -> Steps[str | None]:
    """Up to where the message begins; None where none begins."""
    pieces: list[str] = []
    while True:
        text, tag = yield from calls.source.until(HEADER_TAGS)
        if text:
            pieces.append(text)
        elif tag == "<|message|>":
            return "".join(pieces)
        elif not tag:
            return None
        else:
            pieces.clear()


def _read_message(calls: Calls, header: str, *, with_tools: bool) -> Steps[None]:
    channel, recipient = CHANNEL.search(header), RECIPIENT.search(header)
    to = recipient[1] if recipient else ""
    yield from calls.source.spaces()
    is_call = with_tools and to.startswith(FUNCTIONS) and (yield from calls.source.peek()) in ("{", "<")
    if is_call:
        yield from _read_call(calls, to.removeprefix(FUNCTIONS))
        return
    is_reasoning = channel is not None and channel[1] == "analysis"
    kind = Reasoning if is_reasoning else Content
    yield from _read_text(calls, Prose(kind, strip_start=True))


def _read_call(calls: Calls, name: str) -> Steps[None]:
    """Arguments, and whatever else stands before the message ends."""
    yield calls.begin(name)
    if (yield from calls.source.peek()) == "{":
        yield from stream_value(calls.source, calls.arguments)
    else:
        yield calls.arguments("{}")
    while (yield from calls.source.until(ENDS)).text:
        pass


def _read_text(calls: Calls, prose: Prose) -> Steps[None]:
    while True:
        text, _ = yield from calls.source.until(ENDS)
        if not text:
            break
        yield from prose.say(text)
    if not (yield from calls.source.peek()):
        yield from prose.rest()
