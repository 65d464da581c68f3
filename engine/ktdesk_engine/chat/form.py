"""In which form a chat template reads messages.

Templates differ: some want the arguments of a tool call as a mapping, others as JSON text; some read content
as a list of parts, most as text; a tool call without words has the content "" for some and None for others.
They do not say so. So a short conversation is rendered in each form, and the first that shows up whole in the
text is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

Messages = list[dict[str, Any]]
Render = Callable[[Messages, "list[dict[str, Any]] | None"], "str | None"]
"""(messages, tools) -> text, or None where the template fails."""

CONTENT, NAME, KEY, VALUE, CALL_ID = (
    "ktprobecontent",
    "ktprobename",
    "ktprobekey",
    "ktprobevalue",
    "ktprobe01",
)
"""The id has nine letters and digits, as some templates demand."""


class MessageForm(NamedTuple):
    """What a template reads. The default is right for most."""

    text: bool = True
    parts: bool = False
    arguments: Literal["mapping", "json"] = "mapping"
    no_words: Literal[""] | None = ""
    """Content of a message that only calls tools."""

    def shape(self, messages: Sequence[dict[str, Any]]) -> Messages:
        """The messages in this form."""
        return [self._shape_message(message) for message in messages]

    def _shape_message(self, message: dict[str, Any]) -> dict[str, Any]:
        shaped = {**message, "content": self._shape_content(message["content"])}
        if message.get("tool_calls"):
            shaped["tool_calls"] = [self._shape_call(call) for call in message["tool_calls"]]
            if not message["content"]:
                shaped["content"] = self.no_words
        return shaped

    def _shape_content(self, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Parts that the template cannot read are joined by line breaks, as other engines do."""
        if isinstance(content, list) and not self.parts:
            return "\n".join(part["text"] for part in content)
        if isinstance(content, str) and not self.text:
            return [{"type": "text", "text": content}]
        return content

    def _shape_call(self, call: dict[str, Any]) -> dict[str, Any]:
        if self.arguments == "mapping":
            return call
        if "function" in call:
            return {**call, "function": self._shape_call(call["function"])}
        return {**call, "arguments": json.dumps(call["arguments"], ensure_ascii=False)}


def find_form(render: Render) -> MessageForm:
    """Tries the forms on a template."""
    text = _reads_content(render, CONTENT)
    parts = _reads_content(render, [{"type": "text", "text": CONTENT}])
    form = MessageForm(text=text or not parts, parts=parts)
    for arguments in ("mapping", "json"):
        for no_words in ("", None):
            tried = form._replace(arguments=arguments, no_words=no_words)
            if _reads_tool_calls(render, tried):
                return tried
    return form


def _reads_content(render: Render, content: str | list[dict[str, Any]]) -> bool:
    text = render([{"role": "user", "content": content}], None)
    as_data = ("'type'", '"type"')  # a list that was printed as it is
    return text is not None and CONTENT in text and not any(mark in text for mark in as_data)


def _reads_tool_calls(render: Render, form: MessageForm) -> bool:
    text = render(form.shape(_tool_conversation()), [_tool()])
    if text is None or not all(mark in text for mark in (NAME, KEY, VALUE)):
        return False
    printed_data = f"'{KEY}'" in text  # a mapping printed as Python, which no model was trained on
    escaped_twice = f'\\"{KEY}\\"' in text  # JSON text that was made JSON again
    printed_none = form.no_words is None and "None" in text
    return not (printed_data or escaped_twice or printed_none)


def _tool() -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"x": {"type": "string", "description": "x"}},
        "required": ["x"],
    }
    function = {"name": "x", "description": "x", "parameters": parameters}
    return {"type": "function", "function": function}


def _tool_conversation() -> Messages:
    call = {"id": CALL_ID, "type": "function", "function": {"name": NAME, "arguments": {KEY: VALUE}}}
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": CALL_ID, "name": "x", "content": "x"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "x"},
    ]
