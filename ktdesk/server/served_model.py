"""A loaded model that turns wishes into requests of the engine. Knows no HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ktdesk.lossy import banner, changed
from ktdesk.server.deadline import Deadline
from ktdesk.server.opening import OpenedModel
from ktdesk.server.settings import ServerSettings
from ktdesk.server.shared_beginnings import SharedBeginnings
from ktdesk.server.wanted import ChatWanted, Limits, SamplingWishes, TextWanted, ToolWishes
from ktdesk_engine.chat.grammar import AnswerGrammar, ToolRule
from ktdesk_engine.chat.parsing.answer_parser import AnswerParser
from ktdesk_engine.chat.parsing.style import AnswerStyle, answer_style
from ktdesk_engine.chat.parsing.tools import OfferedTools
from ktdesk_engine.config import Request
from ktdesk_engine.constraint import Constraint
from ktdesk_engine.errors import ContextOverflowError, RequestError
from ktdesk_engine.guidance import Grammar, Guidance

PLAIN_TEXT = AnswerStyle()


@dataclass(frozen=True)
class Prepared:
    """A request of the engine, and how its answer is read."""

    request: Request
    style: AnswerStyle = PLAIN_TEXT
    tools: OfferedTools | None = None
    opens_reasoning: bool = False
    parallel_calls: bool = True
    num_pinned_tokens: int = 0
    deadline: Deadline = field(default_factory=Deadline)

    def parser(self) -> AnswerParser:
        return AnswerParser(self.style, self.tools, opens_reasoning=self.opens_reasoning)

    def variant(self, index: int) -> Prepared:
        """One of several answers to the same: with a seed of its own."""
        seed = self.request.sampling.seed
        if seed is None or index == 0:
            return self
        sampling = replace(self.request.sampling, seed=(seed + index) % 2**64)
        return replace(self, request=replace(self.request, sampling=sampling))


class ServedModel:
    """A model that is ready. Threads may share it."""

    def __init__(self, name: str, opened: OpenedModel, settings: ServerSettings) -> None:
        self.name = name
        self.engine = opened.engine
        self.answers = opened.answers
        self._use = opened.use
        self.created = int(time.time())
        self._settings = settings
        self._guidance: Guidance | None = None
        self._guidance_lock = threading.Lock()
        self._styles: dict[str, AnswerStyle] = {}
        self._beginnings = SharedBeginnings(self._ids_of)

    @property
    def context(self) -> int:
        return self.engine.context

    @property
    def engine_facts(self) -> dict[str, Any]:
        """Which engine computes it, what that one has not, and on which accelerator, where there is one."""
        name = self.engine.accelerator_name
        on = {} if name is None else {"accelerator": name}
        return {"engine": self.engine.config.engine, "missing": list(self.engine.missing), **on}

    @property
    def greeting(self) -> str:
        """What is said of it once it is ready, beyond that it is."""
        name = self.engine.accelerator_name
        on = "" if name is None else f", with {name}"
        return f"{on}{banner(asdict(self.engine.config)).replace(' ', '; ', 1)}"

    @property
    def changes(self) -> dict[str, int]:
        """Settings that make another network of it."""
        return changed(asdict(self.engine.config))

    def prepare_chat(self, wanted: ChatWanted) -> Prepared:
        """Renders the conversation. Takes its time: not for the event loop."""
        style = self._style(with_tools=bool(wanted.tools.offered))
        if wanted.tools.offered and style.calls is None and self.engine.chat_template.source.fallback is None:
            raise RequestError(f"the chat template of {self.name} knows no tools: leave them out")
        prompt, ids = self._rendered(wanted)
        opens = style.reasoning is not None and prompt.rstrip().endswith(style.reasoning[0])
        grammar = self._chat_grammar(wanted, style, opens_reasoning=opens)
        stop = (*wanted.limits.stop, *self.engine.chat_template.stop)
        limits = replace(wanted.limits, stop=stop)
        request = self._request(ids, wanted.sampling, limits, grammar)
        shown = frozenset(self.engine.tokenizer.special_ids(style.tags).values())
        tools = OfferedTools.from_definitions(wanted.tools.offered) if wanted.tools.offered else None
        return Prepared(
            replace(request, shown_ids=shown),
            style,
            tools,
            opens,
            wanted.tools.parallel,
            self._num_pinned_tokens(wanted, ids),
        )

    def prepare_text(self, wanted: TextWanted) -> Prepared:
        is_text = isinstance(wanted.prompt, str)
        ids = self.engine.prompt_ids(wanted.prompt) if isinstance(wanted.prompt, str) else wanted.prompt
        if not ids and self.engine.tokenizer.bos_id is not None:
            ids = (self.engine.tokenizer.bos_id,)
        self._check_length(len(ids))
        request = self._request(ids, wanted.sampling, wanted.limits, wanted.grammar)
        return Prepared(replace(request, is_continuation=is_text))

    def bounded(self, request: Request, conversation: ChatWanted | None) -> Prepared:
        """A request as it is, within the server's limits. conversation: that it goes on with, if it does."""
        self._check_length(len(request.token_ids))
        given = [number for number in (request.max_tokens, self._settings.max_output_tokens) if number is not None]
        bounded = replace(request, max_tokens=min(given, default=None))
        pinned = 0 if conversation is None else self._num_pinned_tokens(conversation, request.token_ids)
        return Prepared(bounded, num_pinned_tokens=pinned)

    def count_chat(self, wanted: ChatWanted) -> int:
        """Tokens of the prompt."""
        return len(self._rendered(wanted)[1])

    def keep_use(self) -> None:
        """Writes down how experts were used, where that changed. Takes its time: not for the event loop."""
        if self._use is not None:
            self._use.save()

    def close(self, finish_seconds: float = 0.0) -> None:
        self.answers.close(finish_seconds)
        self.keep_use()

    def _style(self, *, with_tools: bool) -> AnswerStyle:
        source = self.engine.chat_template.source
        template = source.templates[source.choose(with_tools=with_tools)]
        if template not in self._styles:
            self._styles[template] = answer_style(template)
        return self._styles[template]

    def _rendered(self, wanted: ChatWanted) -> tuple[str, tuple[int, ...]]:
        """The prompt as text and as ids. The oldest messages are left out as far as they must and may be."""
        messages = list(wanted.messages)
        while True:
            text, ids = self._render(replace(wanted, messages=messages))
            try:
                self._check_length(len(ids))
            except ContextOverflowError:
                if not wanted.truncates or not _leave_oldest_out(messages):
                    raise
            else:
                return text, ids

    def _render(self, wanted: ChatWanted) -> tuple[str, tuple[int, ...]]:
        tokenizer = self.engine.tokenizer
        chat = self.engine.chat_template.render(
            wanted.messages, tools=wanted.tools.offered or None, variables=wanted.variables
        )
        ids = tokenizer.encode(
            chat.text, add_bos=tokenizer.adds_bos, parse_special=True, literal_spans=chat.literal_spans
        )
        return chat.text, tuple(ids)

    def _ids_of(self, wanted: ChatWanted) -> tuple[int, ...]:
        return self._render(wanted)[1]

    def _num_pinned_tokens(self, wanted: ChatWanted, ids: tuple[int, ...]) -> int:
        return self._beginnings.num_tokens(wanted, ids) if self._settings.pins_beginnings else 0

    def _check_length(self, num_tokens: int) -> None:
        limit = self._settings.max_prompt_tokens
        if limit is not None and num_tokens > limit:
            raise ContextOverflowError(f"the prompt has {num_tokens} tokens, and this server takes at most {limit}")
        if num_tokens >= self.context:
            more = ", or give a larger --context at the start" if self.engine.can_have_more_context else ""
            raise ContextOverflowError(
                f"the prompt has {num_tokens} tokens, and the context of {self.context} must hold the answer too: "
                f"shorten the prompt{more}"
            )

    def _request(
        self, ids: tuple[int, ...], sampling: SamplingWishes, limits: Limits, grammar: Grammar | None
    ) -> Request:
        bound = self._settings.max_output_tokens
        given = [number for number in (limits.max_tokens, bound) if number is not None]
        return Request(
            ids,
            sampling.over(self.engine.recommended_sampling),
            min(given, default=None),
            limits.stop,
            limits.num_logprobs,
            ignore_eos=limits.ignore_eos,
            make_constraint=None if grammar is None else self._constraint_maker(grammar),
        )

    def _constraint_maker(self, grammar: Grammar) -> Callable[[], Constraint]:
        """Tried at once, so that a grammar that cannot be used is refused before anything is computed."""
        with self._guidance_lock:
            if self._guidance is None:
                self._guidance = Guidance(self.engine.tokenizer)
        guidance = self._guidance
        guidance.constraint(grammar)
        return lambda: guidance.constraint(grammar)

    def _chat_grammar(self, wanted: ChatWanted, style: AnswerStyle, *, opens_reasoning: bool) -> Grammar | None:
        builder = AnswerGrammar(
            style,
            self.engine.tokenizer.special_ids(style.tags),
            opens_reasoning=opens_reasoning,
            may_reason=wanted.variables.get("enable_thinking") is not False,
        )
        rules, is_forced = _tool_rules(wanted.tools), wanted.tools.mode == "required"
        if wanted.grammar is not None:
            return wanted.grammar
        if wanted.json_schema is not None:
            return builder.json_answer(wanted.json_schema)
        if is_forced or any(rule.is_strict for rule in rules):
            return builder.tool_calls(rules, "required" if is_forced else "auto", parallel=wanted.tools.parallel)
        return None


def _tool_rules(tools: ToolWishes) -> list[ToolRule]:
    """Those that may be called."""
    functions: list[Mapping[str, Any]] = [tool["function"] for tool in tools.offered]
    if tools.name is not None:
        functions = [function for function in functions if function["name"] == tools.name]
    if tools.mode == "required" and not functions:
        named = f"the tool {tools.name!r} is not among the tools" if tools.name else "a tool must be called"
        raise RequestError(f"{named}: offer it in tools")
    return [ToolRule(f["name"], f.get("parameters") or {}, f.get("strict") is True) for f in functions]


def _leave_oldest_out(messages: list[Mapping[str, Any]]) -> bool:
    """Drops the first exchange after the system messages. False where only the last question is left."""
    first = next((i for i, m in enumerate(messages) if m.get("role") not in ("system", "developer")), len(messages))
    questions = [i for i in range(first + 1, len(messages)) if messages[i].get("role") == "user"]
    if not questions:
        return False
    del messages[first : questions[0]]
    return True
