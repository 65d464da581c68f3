"""Conversations become prompts: by the chat template of a model file, or a named fallback where it has none.

The template is rendered in a process of its own (`process.py`), given messages in the form that it
reads (`form.py`), with the control tokens that people spell kept apart (`literal_text.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple

from ktdesk_engine.chat.form import MessageForm, Messages, find_form
from ktdesk_engine.chat.literal_text import ControlTokens, Disguise
from ktdesk_engine.chat.messages import check_messages, check_tools
from ktdesk_engine.chat.process import TemplateLimits, TemplateProcess
from ktdesk_engine.chat.source import ModelFile, TemplateSource
from ktdesk_engine.errors import RequestError, TemplateError

OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "strftime_now", "raise_exception"})
SAME_MEANING = (("enable_thinking", "thinking"),)
"""Templates read the one or the other."""
OPPOSITE_MEANING = (("preserve_thinking", "clear_thinking"),)


class RenderedChat(NamedTuple):
    text: str
    """Begins with the template's own BOS, if it writes one."""
    literal_spans: tuple[tuple[int, int], ...]
    """Places in text that spell control tokens, or begin to, and must be read as plain text."""


class ChatTemplate:
    """Turns messages into the prompt that a model was trained on.

    A context manager: its process starts at the first rendering and ends at close.
    """

    def __init__(
        self,
        source: TemplateSource,
        *,
        limits: TemplateLimits | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """clock: the local time that templates may ask for."""
        self.source = source
        self._clock = clock
        self._control_tokens = ControlTokens(source.control_tokens)
        self._process = TemplateProcess(source.origin, limits or TemplateLimits())
        self._forms: dict[str, MessageForm] = {}

    @classmethod
    def from_gguf(cls, file: ModelFile, *, limits: TemplateLimits | None = None) -> ChatTemplate:
        return cls(TemplateSource.from_gguf(file), limits=limits)

    @property
    def name(self) -> str:
        """Which template serves conversations without tools: "file", "file:NAME" or "fallback:NAME"."""
        return self.name_for(with_tools=False)

    @property
    def stop(self) -> tuple[str, ...]:
        """Text that ends an answer, where the model has no token for it."""
        return self.source.stop

    def name_for(self, *, with_tools: bool) -> str:
        if self.source.fallback is not None:
            return f"fallback:{self.source.fallback}"
        chosen = self.source.choose(with_tools=with_tools)
        return "file" if chosen == "default" else f"file:{chosen}"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """The prompt of a conversation in OpenAI's form.

        variables: what a template reads besides it: enable_thinking, reasoning_effort, documents, ...
        RequestError: the conversation is not well formed. TemplateError: the template failed or was stopped.
        """
        checked_tools = check_tools(tools)
        template = self.source.templates[self.source.choose(with_tools=checked_tools is not None)]
        checked = _known_roles(check_messages(messages, more_roles=template), template)
        self._refuse_tools_in_fallback(checked, checked_tools)
        context = {
            **_expand(variables or {}),
            "messages": self._form(template).shape(checked),
            "tools": checked_tools,
            "add_generation_prompt": add_generation_prompt,
        }
        disguise = Disguise(self._control_tokens)
        reply = self._ask(template, context, disguise)
        if "text" not in reply:
            raise TemplateError(f"{self.source.origin}: {_explain(reply)}")
        return RenderedChat(*disguise.reveal(reply["text"]))

    def close(self) -> None:
        """Ends the process. A later rendering starts a new one."""
        self._process.close()

    def __enter__(self) -> ChatTemplate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _form(self, template: str) -> MessageForm:
        """All that finding it takes has the time of one rendering."""
        spent_seconds = 0.0

        def render(messages: Messages, tools: list[dict[str, Any]] | None) -> str | None:
            nonlocal spent_seconds
            context = {"messages": messages, "tools": tools, "add_generation_prompt": True}
            started = time.monotonic()
            reply = self._ask(template, context, Disguise(self._control_tokens), spent_seconds)
            spent_seconds += time.monotonic() - started
            return reply.get("text")

        if template not in self._forms:
            self._forms[template] = find_form(render)
        return self._forms[template]

    def _ask(
        self, template: str, variables: Mapping[str, Any], disguise: Disguise, spent_seconds: float = 0.0
    ) -> dict[str, Any]:
        """The worker's reply to one rendering."""
        defaults = {"bos_token": "", "eos_token": "", "documents": None, **self.source.special_tokens}
        request = {"template": template, "now": self._clock().isoformat()}
        try:
            line = json.dumps({**request, "context": {**defaults, **disguise.hide(variables)}})
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"the conversation cannot be written as JSON: {error}") from error
        return self._process.ask(line, spent_seconds)

    def _refuse_tools_in_fallback(self, messages: Messages, tools: list[dict[str, Any]] | None) -> None:
        """It would drop them without a word."""
        name = self.source.fallback
        if name is not None and (tools or any(message.get("tool_calls") for message in messages)):
            raise RequestError(
                f"{self.source.origin} has no chat template, and the fallback {name} knows no tools: "
                "leave them out, or use a file with a template"
            )


def _known_roles(messages: Messages, template: str) -> Messages:
    """`developer` is what newer clients call `system`; few templates know it."""
    if "developer" in template:
        return messages
    return [{**message, "role": "system"} if message["role"] == "developer" else message for message in messages]


def _expand(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Variables, and their other names where those are not given."""
    if not isinstance(variables, Mapping):
        raise RequestError(f"template variables must be a mapping from names to values: {variables!r:.80}")
    own = OWN_VARIABLES & variables.keys()
    if own:
        raise RequestError(f"template variables may not be named {', '.join(sorted(own))}: rename them")
    expanded = dict(variables)
    for pair in SAME_MEANING + OPPOSITE_MEANING:
        for name, other in (pair, pair[::-1]):
            if name in variables and other not in variables:
                expanded[other] = variables[name] if pair in SAME_MEANING else not variables[name]
    return expanded


def _explain(reply: Mapping[str, Any]) -> str:
    """One line about a failed rendering."""
    message = "".join(letter if letter.isprintable() else " " for letter in str(reply.get("message")))
    place = f" in line {reply['line']}" if reply.get("line") else ""
    match reply.get("error"):
        case "syntax":
            return f"the chat template is broken{place}: {message}; give the prompt raw, or use another file"
        case "refused":
            return f"the chat template refuses this conversation: {message}"
        case "output":
            return "the chat template wrote more than any context holds and was stopped; give the prompt raw"
        case "memory":
            return "the chat template needs more memory than it may have; give the prompt raw"
        case _:
            return f"the chat template failed{place}: {message}; give the prompt raw, or use another file"
