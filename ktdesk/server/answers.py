"""Answers as the event loop sees them: chunks of parts, until a reason to finish. Closing one cancels it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from ktdesk.server.served_model import Prepared, ServedModel
from ktdesk_engine.answer import StreamEvent, Timings
from ktdesk_engine.chat.parsing.answer_parser import AnswerParser
from ktdesk_engine.chat.parsing.parts import CallArguments, CallStart, Content, Part, Reasoning, merged
from ktdesk_engine.errors import DeadlineError
from ktdesk_engine.sampler import TokenLogprobs

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Chunk:
    """What one step of an answer adds."""

    parts: tuple[Part, ...]
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_string: str | None = None
    """On the last chunk, where one ended the answer."""
    usage: Usage | None = None
    """On the last chunk."""


@dataclass(frozen=True)
class Usage:
    num_prompt_tokens: int = 0
    num_answer_tokens: int = 0
    num_cached_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Of several answers to the same prompt, which counts once."""
        return Usage(
            max(self.num_prompt_tokens, other.num_prompt_tokens),
            self.num_answer_tokens + other.num_answer_tokens,
            max(self.num_cached_tokens, other.num_cached_tokens),
            self.prefill_seconds + other.prefill_seconds,
            self.decode_seconds + other.decode_seconds,
        )


@dataclass
class ToolCall:
    name: str
    call_id: str | None
    arguments: str = ""


@dataclass
class WholeAnswer:
    """Chunks folded up."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    stop_string: str | None = None
    usage: Usage = field(default_factory=Usage)

    def add(self, chunk: Chunk) -> None:
        for part in chunk.parts:
            if isinstance(part, Content):
                self.content += part.text
            elif isinstance(part, Reasoning):
                self.reasoning += part.text
            elif isinstance(part, CallStart):
                self.calls.append(ToolCall(part.name, part.call_id))
            else:
                self.calls[part.index].arguments += part.text
        self.logprobs += chunk.logprobs
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.stop_string = chunk.stop_string
        self.usage = chunk.usage or self.usage


async def answer_chunks(model: ServedModel, prepared: Prepared) -> AsyncGenerator[Chunk, None]:
    """One answer as it comes. Raises what the engine raises."""
    parser = prepared.parser()
    num_tokens = 0
    async with aclosing(answer_events(model, prepared)) as events:
        async for event in events:
            num_tokens += len(event.token_ids)
            parts = parser.push(event.text)
            if event.finish_reason is not None:
                parts = merged([*parts, *parser.finish(is_cut=event.finish_reason == "length")])
            if parser.num_calls > 1 and not prepared.parallel_calls:
                usage = Usage(len(prepared.request.token_ids), num_tokens)
                yield Chunk(_first_call_only(parts), event.token_ids, event.logprobs, "tool_calls", usage=usage)
                return
            yield _chunk(event, tuple(parts), parser)


async def whole_answer(model: ServedModel, prepared: Prepared) -> WholeAnswer:
    answer = WholeAnswer()
    async with aclosing(answer_chunks(model, prepared)) as chunks:
        async for chunk in chunks:
            answer.add(chunk)
    return answer


async def several_answers(
    model: ServedModel, prepared: Prepared, count: int
) -> AsyncGenerator[tuple[int, Chunk], None]:
    """Answers to the same prompt, as they come, each with its index."""
    chunks: asyncio.Queue[tuple[int, Chunk | Exception]] = asyncio.Queue()

    async def read(index: int) -> None:
        try:
            async with aclosing(answer_chunks(model, prepared.variant(index))) as answer:
                async for chunk in answer:
                    chunks.put_nowait((index, chunk))
        except Exception as error:
            chunks.put_nowait((index, error))

    tasks = [asyncio.ensure_future(read(index)) for index in range(count)]
    try:
        num_open = count
        while num_open:
            index, chunk = await chunks.get()
            if isinstance(chunk, Exception):
                raise chunk
            num_open -= chunk.finish_reason is not None
            yield index, chunk
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answer_events(model: ServedModel, prepared: Prepared) -> AsyncGenerator[StreamEvent, None]:
    """As the engine tells them."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[StreamEvent | Exception] = asyncio.Queue()

    def deliver(event: StreamEvent | Exception) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, event)

    running = model.answers.submit(
        prepared.request,
        deliver=deliver,
        deadline_seconds=prepared.deadline.seconds_left(),
        num_pinned_tokens=prepared.num_pinned_tokens,
    )
    try:
        while True:
            event = await arrived.get()
            if isinstance(event, DeadlineError):
                raise prepared.deadline.error()
            if isinstance(event, Exception):
                raise event
            yield event
            if event.finish_reason is not None:
                return
    finally:
        running.close()


def _chunk(event: StreamEvent, parts: tuple[Part, ...], parser: AnswerParser) -> Chunk:
    reason: FinishReason | None = event.finish_reason
    if reason == "stop" and parser.num_calls:
        reason = "tool_calls"
    usage = None if event.timings is None else _usage(event.timings)
    return Chunk(parts, event.token_ids, event.logprobs, reason, event.stop_string, usage)


def _usage(timings: Timings) -> Usage:
    return Usage(
        timings.num_prompt_tokens,
        timings.num_answer_tokens,
        timings.num_cached_tokens,
        timings.prefill_seconds,
        timings.decode_seconds,
    )


def _first_call_only(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not (isinstance(part, (CallStart, CallArguments)) and part.index > 0))
