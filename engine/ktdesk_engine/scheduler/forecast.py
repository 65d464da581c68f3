"""How long a new request would wait for its first token: the queue, played through.

Pure functions of who is there and how fast the engine is. What runs now and is done before the request's turn
comes slows it no more: the load that counts is that of then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ktdesk_engine.scheduler.cost import Cost

SMALLEST_CHUNK = 8
"""Prompt tokens that are computed between two tokens of others however slow it is, or a prompt would never be done."""
SAFETY = 0.8
"""Of the time between two tokens that is planned with: what is predicted is not what will be."""


class Turn(NamedTuple):
    """A chunk of a prompt, and a token for each stream."""

    num_prompt_tokens: int
    seconds: float


class ExpectedPrompt(NamedTuple):
    num_tokens: int
    """To compute: without those that are cached."""
    position: int
    """Of the first of these."""
    num_answer_tokens: int
    """Once it is done; at least 1."""


@dataclass(frozen=True)
class Load:
    """Who comes before a new request."""

    streams: tuple[int, ...] = ()
    """For each running answer the tokens that it will still have; at least 1."""
    prompts: tuple[ExpectedPrompt, ...] = ()
    """In the order of their turns."""


@dataclass(frozen=True)
class Speeds:
    """What was measured, and what the streams are promised."""

    prefill: Cost
    decode: Cost
    max_stall_seconds: float
    largest_chunk: int

    @property
    def are_known(self) -> bool:
        return self.prefill.is_known

    def chunk_seconds(self, num_streams: int) -> float:
        """What is left for a prompt between two tokens of so many streams."""
        return SAFETY * self.max_stall_seconds - self.decode.seconds(num_streams)

    def turn(self, num_streams: int, num_tokens: int, position: int) -> Turn:
        """The next one of a prompt with so many tokens to compute from a position on."""
        chunk = min(num_tokens, self.largest_chunk)
        if num_streams:
            fitting = self.prefill.largest_step(self.chunk_seconds(num_streams), position, chunk)
            chunk = max(min(SMALLEST_CHUNK, chunk), fitting)
        return Turn(chunk, self.prefill.seconds(chunk, position) + self.decode.seconds(num_streams))


def predicted_wait(load: Load, prompt: ExpectedPrompt, speeds: Speeds, max_running: int) -> float:
    """Seconds until the first token of a request that comes after all these. 0 where nothing was measured yet."""
    seconds = 0.0
    streams = list(load.streams)
    for waiting in (*load.prompts, prompt):
        if len(streams) >= max_running:
            num_turns = min(streams)
            seconds += num_turns * speeds.decode.seconds(len(streams))
            streams = _after(streams, num_turns)
        num_left = waiting.num_tokens
        while num_left > 0:
            position = waiting.position + (waiting.num_tokens - num_left)
            turn = speeds.turn(len(streams), num_left, position)
            num_turns = min([num_left // turn.num_prompt_tokens, *streams]) or 1
            seconds += num_turns * turn.seconds
            num_left -= num_turns * turn.num_prompt_tokens
            streams = _after(streams, num_turns)
        streams.append(waiting.num_answer_tokens)
    return seconds


def _after(streams: Sequence[int], num_turns: int) -> list[int]:
    """Tokens left for those that are not done then."""
    return [left - num_turns for left in streams if left > num_turns]


def expected_answer_tokens(num_tokens_left: int, mean_answer_tokens: float) -> int:
    """Of an answer that may have so many more, from how long answers were."""
    return max(1, min(num_tokens_left, math.ceil(mean_answer_tokens)))
