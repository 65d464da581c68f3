"""The engine as the server sees it: requests go in from any thread, events come out by a callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from ktdesk.server.ceilings import UNKNOWN, Ceilings
from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import Request
from ktdesk_engine.engine_thread import EngineThread
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.text_engine import TextEngine

Deliver = Callable[[StreamEvent | Exception], None]
"""Called on the engine's thread: must not block. After a finish reason or an exception nothing follows."""
Numbers = dict[str, float]


class RunningAnswer(Protocol):
    def close(self) -> None:
        """Cancels, from any thread, without waiting."""
        ...


class AnswerEngine(Protocol):
    """What computes."""

    @property
    def failure(self) -> BaseException | None:
        """What ended the engine's thread, if something did."""
        ...

    def submit(
        self, request: Request, *, deliver: Deliver, deadline_seconds: float | None = None, num_pinned_tokens: int = 0
    ) -> RunningAnswer:
        """Raises at once what can be said at once. num_pinned_tokens: of the prompt's beginning, to be kept longest."""
        ...

    def numbers(self) -> Numbers:
        """For /metrics, by name."""
        ...

    def close(self, finish_seconds: float = 0.0) -> None:
        """Takes no more requests, lets those that run finish for so long, and ends the engine."""
        ...


class ScheduledEngine:
    """The scheduler's thread, with its numbers in one flat table."""

    def __init__(
        self,
        engine: TextEngine,
        limits: SchedulerLimits | None = None,
        cache: CacheLimits | None = None,
        ceilings: Ceilings = UNKNOWN,
    ) -> None:
        self._ceilings = ceilings
        self._accelerator_numbers = engine.accelerator_numbers
        self._token_operations = engine.token_operations()
        self._is_on_tiles = engine.config.compute in ("mixed", "bf16")
        self._thread = EngineThread(engine, limits, cache)

    @property
    def failure(self) -> BaseException | None:
        return self._thread.failure

    def submit(
        self, request: Request, *, deliver: Deliver, deadline_seconds: float | None = None, num_pinned_tokens: int = 0
    ) -> RunningAnswer:
        return self._thread.submit(request, deliver, deadline_seconds, num_pinned_tokens)

    def numbers(self) -> Numbers:
        """What counts since the start ends with _total; what is of the cache begins with cache_, what is of an
        accelerator with accelerator_."""
        facts = asdict(self._thread.stats())
        counters, cache = facts.pop("counters"), facts.pop("cache")
        totals = {f"{name.removeprefix('num_')}_total": value for name, value in counters.items()}
        reading = _rate(
            "decode_weight_bytes", "decode_bandwidth", facts.pop("decode_weight_bytes_s"), self._ceilings.read_bytes_s
        )
        computing = _rate(
            "prefill_operations", "prefill_peak", self._prefill_ops_s(facts["prefill_tok_s"]), self._ceilings.ops_s
        )
        if computing:
            computing["prefill_on_tiles"] = float(self._is_on_tiles)
        on_accelerator = {f"accelerator_{name}": value for name, value in self._accelerator_numbers().items()}
        return {**reading, **computing, **facts, **totals, **_flat(cache), **on_accelerator}

    def _prefill_ops_s(self, tok_s: float) -> float | None:
        """None before the first prompt, and where an engine does not say what a token takes."""
        return None if self._token_operations is None or not tok_s else tok_s * self._token_operations

    def close(self, finish_seconds: float = 0.0) -> None:
        self._thread.close(finish_seconds)


def _rate(what: str, of_what: str, rate: float | None, ceiling: float | None) -> Numbers:
    """What is not known is left out."""
    if rate is None:
        return {}
    numbers = {f"{what}_per_second": rate}
    if ceiling is not None:
        numbers[f"{of_what}_share"] = rate / ceiling
    return numbers


def _flat(cache: Mapping[str, Any]) -> Numbers:
    """Pages are told for each tier."""
    numbers: Numbers = {}
    for name, value in cache.items():
        if isinstance(value, Mapping):
            numbers.update({f"cache_{name}_{tier}": count for tier, count in value.items()})
        elif isinstance(value, (int, float)):
            numbers[f"cache_{name}"] = value
    return numbers
