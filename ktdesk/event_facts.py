"""Events of an answer as JSON, and back: between a server of ours and `run` and `chat`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ktdesk_engine.answer import StreamEvent, Timings
from ktdesk_engine.sampler import TokenLogprobs


def facts_of(event: StreamEvent) -> dict[str, Any]:
    return {
        "text": event.text,
        "token_ids": list(event.token_ids),
        "logprobs": [[list(pair) for pair in _pairs(entry)] for entry in event.logprobs],
        "finish_reason": event.finish_reason,
        "stop_string": event.stop_string,
        "timings": None if event.timings is None else asdict(event.timings),
    }


def event_of(facts: dict[str, Any]) -> StreamEvent:
    timings = facts["timings"]
    return StreamEvent(
        facts["text"],
        tuple(facts["token_ids"]),
        tuple(_logprobs(pairs) for pairs in facts["logprobs"]),
        facts["finish_reason"],
        facts["stop_string"],
        None if timings is None else Timings(**timings),
    )


def _pairs(entry: TokenLogprobs) -> Iterator[tuple[int, float | None]]:
    """The chosen token, then the likeliest. JSON has no infinity."""
    for token_id, logprob in ((entry.token_id, entry.logprob), *entry.top):
        yield token_id, logprob if math.isfinite(logprob) else None


def _logprobs(pairs: list[tuple[int, float | None]]) -> TokenLogprobs:
    (token_id, logprob), *top = [(i, -math.inf if logprob is None else logprob) for i, logprob in pairs]
    return TokenLogprobs(token_id, logprob, tuple(top))
