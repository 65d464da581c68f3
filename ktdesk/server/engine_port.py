"""The engine as the server sees it: requests go in from any thread, events come out by a callback."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from ktdesk_engine.config import Request
from ktdesk_engine.engine import Engine, StreamEvent
from ktdesk_engine.errors import RequestError

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

    def submit(self, request: Request, *, deliver: Deliver) -> RunningAnswer:
        """Raises at once what can be said at once."""
        ...

    def numbers(self) -> Numbers:
        """For /metrics, by name."""
        ...

    def close(self, finish_seconds: float = 0.0) -> None:
        """Takes no more requests, lets those that run finish for so long, and ends the engine."""
        ...


@dataclass
class _Job:
    request: Request
    deliver: Deliver
    is_cancelled: bool = False

    def close(self) -> None:
        self.is_cancelled = True


class StreamingEngine:
    """One answer after another, on a thread of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_stopping = False
        self._counts = dict.fromkeys(("answers", "prompt_tokens", "answer_tokens"), 0.0)
        self._num_taken = 0  # written by those who submit, on the event loop
        self._num_done = 0  # written by the engine's thread
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, *, deliver: Deliver) -> RunningAnswer:
        if self._is_stopping:
            raise RequestError("the server is stopping")
        self._engine.stream(request).close()  # checks the request, computes nothing
        job = _Job(request, deliver)
        self._num_taken += 1
        self._jobs.put(job)
        return job

    def numbers(self) -> Numbers:
        num_open = self._num_taken - self._num_done
        return {"open_answers": num_open, **{f"{name}_total": value for name, value in self._counts.items()}}

    def close(self, finish_seconds: float = 0.0) -> None:
        self._is_stopping = True
        self._jobs.put(None)
        self._thread.join(finish_seconds)
        self._engine.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._answer(job)
            except Exception as error:
                job.deliver(error)
            self._num_done += 1

    def _answer(self, job: _Job) -> None:
        with closing(self._engine.stream(job.request)) as events:
            for event in events:
                if job.is_cancelled:
                    return
                self._count(event)
                job.deliver(event)

    def _count(self, event: StreamEvent) -> None:
        self._counts["answer_tokens"] += len(event.token_ids)
        if event.timings is not None:
            self._counts["answers"] += 1
            self._counts["prompt_tokens"] += event.timings.num_prompt_tokens
