"""One request on its way: waiting, its prompt computed, answering, gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ktdesk_engine.answer import Answer, StreamEvent
from ktdesk_engine.scheduler.place import Place

Deliver = Callable[[StreamEvent | Exception], None]
"""Gets the events of one request, one after the other, or what ended it. Must not block."""


@dataclass(eq=False)
class Job:
    """What the scheduler knows of a request."""

    answer: Answer
    deliver: Deliver
    arrived_at: float
    deadline_seconds: float | None = None
    """From its arrival to its last token."""
    num_pinned_tokens: int = 0
    number: int = 0
    """The order in which they came."""
    num_cached_tokens: int = 0
    """Of the prompt: before its turn what the cache promised, after it what it gave."""
    place: Place | None = None
    """While it runs."""
    is_cancelled: bool = False
    """Any thread may set it; it is gone within one step."""
    is_counted: bool = False
    """Its prompt is among those whose turn came."""
    started_at: float | None = None
    """Its turn came."""
    token_times: list[float] = field(default_factory=list)
    """When the first and the last token were chosen."""

    @property
    def is_answering(self) -> bool:
        return bool(self.token_times)

    @property
    def num_tokens_to_compute(self) -> int:
        """Of all it has so far."""
        num_done = self.place.sequence.length if self.place else self.num_cached_tokens
        return len(self.answer.token_ids) - num_done

    def is_late(self, now: float) -> bool:
        return self.deadline_seconds is not None and now - self.arrived_at > self.deadline_seconds

    def note_token(self, now: float) -> float:
        """A token was chosen; seconds since the one before it."""
        gap = now - self.token_times[-1] if self.token_times else 0.0
        self.token_times = [*self.token_times[:1], now]
        return gap

    def finished(self, event: StreamEvent) -> StreamEvent:
        """The last event, with what all of it took."""
        started, first, last = self.started_at or self.arrived_at, self.token_times[0], self.token_times[-1]
        timings = self.answer.timings(
            prefill_seconds=first - started,
            decode_seconds=last - first,
            num_cached_tokens=self.num_cached_tokens,
            queued_seconds=started - self.arrived_at,
        )
        return replace(event, timings=timings)
