"""One thread that owns an engine, and answers requests that other threads bring.

    with EngineThread(engine) as thread:
        for event in thread.submit(Request(engine.chat_ids(messages))):
            print(event.text, end="")

Nobody else computes with the engine from then on; its tokenizer and templates stay everybody's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType

from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.config import Request
from ktdesk_engine.errors import StoppingError
from ktdesk_engine.prefix_cache.limits import CacheLimits
from ktdesk_engine.scheduler.job import Deliver, Job
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.scheduler.scheduler import Scheduler
from ktdesk_engine.scheduler.stats import SchedulerStats
from ktdesk_engine.text_engine import TextEngine

FLUSH_SECONDS = 30.0
"""For what the disk should have, at the end."""
RETRY_WRITE_SECONDS = 0.02


class AnswerStream:
    """The events of one request. Closing it cancels: its place is free within one step."""

    def __init__(self, close: Callable[[], None], events: SimpleQueue[StreamEvent | Exception]) -> None:
        self.close = close
        """From any thread, as often as you like; does not wait."""
        self._events = events

    def __iter__(self) -> Iterator[StreamEvent]:
        """Ends after the event with a finish_reason; raises what ended the request otherwise."""
        try:
            while True:
                event = self._events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            self.close()


class EngineThread:
    """`submit` from any thread; `close` ends it, and the engine."""

    def __init__(
        self, engine: TextEngine, limits: SchedulerLimits | None = None, cache_limits: CacheLimits | None = None
    ) -> None:
        """ResourceError where the disk cache cannot be used: without disk_bytes it can do without."""
        self.engine = engine
        self.failure: BaseException | None = None
        """What ended the thread, where it was not `close`."""
        self._cache = engine.make_prefix_cache(cache_limits or CacheLimits())
        self._scheduler = Scheduler(
            engine.runner,
            self._cache,
            engine.cache,
            _within(limits or SchedulerLimits(), engine.max_sequences),
            engine.prefill_chunk,
            weight_bytes=engine.step_weight_bytes,
        )
        self._wake = threading.Event()
        self._door = threading.Lock()
        """Held while a request comes in, and when the last one was let in."""
        self._stop_at: float | None = None
        """Once it is closing: when those who still answer must end."""
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="ktdesk-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        request: Request,
        deliver: Deliver | None = None,
        deadline_seconds: float | None = None,
        num_pinned_tokens: int = 0,
    ) -> AnswerStream:
        """Queues a request. BusyError, StoppingError or another RequestError, at once, where it is refused.

        deliver: called on the engine's thread with each event, or what ended the request; must not block. Without
        it, iterate over the stream. deadline_seconds: from now to the last token. num_pinned_tokens: of the
        beginning of the prompt, such as a system prompt; their whole pages stay cached before all others.
        """
        self._check_door()
        events: SimpleQueue[StreamEvent | Exception] = SimpleQueue()
        job = self._job(request, deliver or events.put, deadline_seconds, num_pinned_tokens)
        with self._door:
            self._check_door()
            self._scheduler.add(job)
        self._wake.set()
        return AnswerStream(lambda: self._cancel(job), events)

    def predicted_wait(self, token_ids: Sequence[int]) -> float:
        """Seconds until the first token of an answer to this prompt; 0 before anything was measured."""
        return self._scheduler.predicted_wait(self._job(Request(tuple(token_ids)), lambda event: None))

    def stats(self) -> SchedulerStats:
        return self._scheduler.stats()

    def close(self, finish_seconds: float = 0.0) -> None:
        """Takes no more requests, gives those that run so long to end, writes the disk cache, closes the engine."""
        with self._door:
            self._stop_at = time.monotonic() + finish_seconds
        self._wake.set()
        self._thread.join()

    def __enter__(self) -> EngineThread:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _job(
        self,
        request: Request,
        deliver: Deliver,
        deadline_seconds: float | None = None,
        num_pinned_tokens: int = 0,
    ) -> Job:
        answer = self.engine.answer(request)
        return Job(answer, deliver, time.perf_counter(), deadline_seconds, num_pinned_tokens)

    def _check_door(self) -> None:
        if self._is_over or self._stop_at is not None:
            raise StoppingError("the engine is stopping and takes no more requests")

    def _cancel(self, job: Job) -> None:
        job.is_cancelled = True
        self._wake.set()

    def _run(self) -> None:
        try:
            while self._goes_on():
                if not self._scheduler.step() and not self._cache.write_behind() and self._stop_at is None:
                    self._wake.wait(RETRY_WRITE_SECONDS if self._cache.has_unwritten else None)
        except BaseException as error:
            self.failure = error
        finally:
            self._end()

    def _goes_on(self) -> bool:
        """Not closing; or somebody still answers, and has time. Who changes that wakes the thread after this looked."""
        if self._scheduler.lost is not None:
            raise self._scheduler.lost
        self._wake.clear()
        stop_at = self._stop_at
        return stop_at is None or (time.monotonic() < stop_at and self._scheduler.has_work)

    def _end(self) -> None:
        reason = "the engine stopped before the answer was done"
        if self.failure is not None:
            reason += f": {type(self.failure).__name__}: {self.failure}"
        with self._door:
            self._is_over = True
        self._scheduler.dismiss_all(StoppingError(reason))
        self._cache.close(FLUSH_SECONDS)
        self.engine.close()


def _within(limits: SchedulerLimits, max_sequences: int | None) -> SchedulerLimits:
    """What the engine cannot compute together waits."""
    return limits if max_sequences is None else replace(limits, max_running=min(limits.max_running, max_sequences))
