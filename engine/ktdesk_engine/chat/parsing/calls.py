"""What the readers of tool calls share: the state of an answer's calls, and calls written as JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from ktdesk_engine.chat.parsing.json_reading import is_json, read_string, read_value, stream_value
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Part, Steps
from ktdesk_engine.chat.parsing.text_source import TextSource
from ktdesk_engine.chat.parsing.tools import OfferedTools

ARGUMENT_KEYS = ("arguments", "parameters")


@dataclass
class Calls:
    """The tool calls of one answer."""

    source: TextSource
    tools: OfferedTools
    count: int = field(default=0, init=False)

    def begin(self, name: str, call_id: str | None = None) -> CallStart:
        """From here on there is no way back: the client has seen it."""
        self.source.forget_mark()
        self.count += 1
        return CallStart(self.count - 1, name, call_id)

    def arguments(self, text: str) -> CallArguments:
        """A piece of those of the last call."""
        return CallArguments(self.count - 1, text)

    def whole(self, name: str, arguments: str | None) -> Iterator[Part]:
        """A call whose arguments are all there."""
        yield self.begin(name)
        yield self.arguments(_object_text(arguments))

    def json_arguments(self) -> Steps[None]:
        """Passes on the object that comes next. Models may also write its text as a string, or nothing."""
        if (yield from self.source.peek()) == "{":
            yield from stream_value(self.source, self.arguments)
        else:
            yield self.arguments(_object_text((yield from read_value(self.source))))


def _object_text(text: str | None) -> str:
    """Arguments as the text of an object, whichever way the model wrote them."""
    value = None if text is None else json.loads(text)
    if isinstance(value, str) and is_json(value):
        text, value = value, json.loads(value)
    return text if text is not None and isinstance(value, dict) else "{}"


def read_call_object(calls: Calls, *, only_offered: bool = False) -> Steps[bool]:
    """`{"name": ..., "arguments": {...}}`. False, and nothing yielded, where it is something else.

    only_offered: an object that names no tool on offer is not a call.
    """
    source = calls.source
    if not (yield from source.literal("{")):
        return False
    name = arguments = None
    is_begun = False
    while True:
        key = yield from _read_key(source)
        if key == "name" and name is None:
            name = yield from read_string(source)
            if name is None or (only_offered and name not in calls.tools):
                return False
        elif key in ARGUMENT_KEYS and name is not None and not is_begun:
            is_begun = True
            yield calls.begin(name)
            yield from calls.json_arguments()
        elif key is not None:
            value = yield from read_value(source)
            arguments = value if key in ARGUMENT_KEYS else arguments
        if key is None or not (yield from _comma_follows(source)):
            break
    if not (yield from source.literal("}")) and not is_begun:
        return False
    if not is_begun and name is not None:
        yield from calls.whole(name, arguments)
    return name is not None


def _read_key(source: TextSource) -> Steps[str | None]:
    """The next key of an object, its colon and white space."""
    yield from source.spaces()
    key = yield from read_string(source)
    yield from source.spaces()
    if key is None or not (yield from source.literal(":")):
        return None
    yield from source.spaces()
    return key


def _comma_follows(source: TextSource) -> Steps[bool]:
    yield from source.spaces()
    return (yield from source.literal(","))
