"""Splits the text of an answer into reasoning, content and tool calls while it comes."""

from __future__ import annotations

from ktdesk_engine.chat.parsing.calls import Calls
from ktdesk_engine.chat.parsing.harmony import read_harmony
from ktdesk_engine.chat.parsing.parts import Content, Part, Reasoning, Steps, merged
from ktdesk_engine.chat.parsing.prose import Prose
from ktdesk_engine.chat.parsing.style import AnswerStyle, CallStyle, ReadCall
from ktdesk_engine.chat.parsing.text_source import TextSource
from ktdesk_engine.chat.parsing.tools import OfferedTools

NO_CALLS = CallStyle("none")


class AnswerParser:
    """`push` each piece of text, then `finish`. However the text is cut, the parts say the same."""

    def __init__(self, style: AnswerStyle, tools: OfferedTools | None = None, *, opens_reasoning: bool = False) -> None:
        """tools None: what looks like a tool call is text. opens_reasoning: the prompt ends with the tag for it."""
        self._style = style
        self._source = TextSource()
        self._call_style = NO_CALLS if tools is None or style.calls is None else style.calls
        self._calls = Calls(self._source, tools or OfferedTools({}))
        if style.is_harmony:
            self._steps = read_harmony(self._calls, with_tools=tools is not None)
        else:
            self._steps = self._answer(opens_reasoning)

    @property
    def num_calls(self) -> int:
        """Tool calls so far."""
        return self._calls.count

    def push(self, text: str) -> list[Part]:
        """What is sure now."""
        self._source.push(text)
        return self._new_parts()

    def finish(self, *, is_cut: bool = False) -> list[Part]:
        """What was held back. is_cut: the answer met a limit, so half a tag or half a call at its end is no text."""
        self._source.end(is_cut=is_cut)
        return self._new_parts()

    def _new_parts(self) -> list[Part]:
        parts: list[Part] = []
        for part in self._steps:
            if part is None:
                break
            parts.append(part)
        return merged(parts)

    def _answer(self, opens_reasoning: bool) -> Steps[None]:
        reasons = opens_reasoning or (yield from self._reasoning_begins())
        if reasons:
            yield from self._reasoning()
        yield from self._content_and_calls(after_reasoning=reasons)

    def _reasoning_begins(self) -> Steps[bool]:
        """Only where an answer begins: later, the tag is text."""
        if self._style.reasoning is None:
            return False
        self._source.mark()
        yield from self._source.spaces()
        begins = yield from self._source.literal(self._style.reasoning[0])
        if begins:
            self._source.forget_mark()
        else:
            self._source.rewind()
        return begins

    def _reasoning(self) -> Steps[None]:
        assert self._style.reasoning is not None
        openings = self._call_style.openings if self._call_style.ends_reasoning else ()
        tags = [self._style.reasoning[1], *(tag for tag, _ in openings)]
        prose = Prose(Reasoning, strip_start=True)
        while True:
            text, tag = yield from self._source.until(tags)
            if not text:
                break
            yield from prose.say(text)
        if tag and tag != tags[0]:
            self._source.skip(-len(tag))

    def _content_and_calls(self, *, after_reasoning: bool) -> Steps[None]:
        prose = Prose(Content, strip_start=after_reasoning)
        if self._call_style.at_start and (yield from self._try(self._call_style.at_start)):
            prose.begin_again()
        readers = dict(self._call_style.openings)
        while True:
            text, tag = yield from self._source.until(list(readers))
            if text:
                yield from prose.say(text)
            elif not tag:
                break
            elif (yield from self._try(readers[tag])):
                prose.begin_again()
            elif not self._source.is_broken_off:
                yield from prose.say(tag)
        yield from prose.rest()

    def _try(self, read: ReadCall) -> Steps[bool]:
        """Reads a call, or goes back to where it would have begun. A call that was cut off is dropped."""
        self._source.mark()
        is_call = yield from read(self._calls)
        if is_call:
            self._source.forget_mark()
        else:
            self._source.rewind()
        return is_call
