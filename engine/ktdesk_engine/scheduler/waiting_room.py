"""Requests that wait for their turn: first come, first served, and not too many."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable

from ktdesk_engine.errors import BusyError
from ktdesk_engine.scheduler.forecast import ExpectedPrompt, Load, Speeds, expected_answer_tokens, predicted_wait
from ktdesk_engine.scheduler.job import Job
from ktdesk_engine.scheduler.limits import SchedulerLimits

FIRST_GUESS_TOKENS = 256
"""Of an answer, before there was one."""
WEIGHT_OF_NEWEST = 0.1


class WaitingRoom:
    """Any thread may enter a job; one thread takes them out."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._jobs: deque[Job] = deque()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._running = Load()
        self._mean_answer_tokens = float(FIRST_GUESS_TOKENS)
        self.num_refused = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def enter(self, job: Job, speeds: Speeds) -> None:
        """BusyError where too many wait, or it would wait too long."""
        with self._lock:
            wait = predicted_wait(self._load(), self._expected(job), speeds, self._limits.max_running)
            try:
                self._check(wait)
            except BusyError:
                self.num_refused += 1
                raise
            job.number = next(self._numbers)
            self._jobs.append(job)

    def predicted_wait(self, job: Job, speeds: Speeds) -> float:
        """Seconds until its first token, if it came now."""
        with self._lock:
            return predicted_wait(self._load(), self._expected(job), speeds, self._limits.max_running)

    def first(self) -> Job | None:
        with self._lock:
            return self._jobs[0] if self._jobs else None

    def take(self, job: Job) -> None:
        """It has a place now, or is gone."""
        with self._lock:
            self._jobs.remove(job)

    def put_back(self, job: Job) -> None:
        """Before all others: it had its turn."""
        with self._lock:
            self._jobs.appendleft(job)

    def those(self, is_wanted: Callable[[Job], bool]) -> list[Job]:
        with self._lock:
            return [job for job in self._jobs if is_wanted(job)]

    def note_running(self, streams: list[Job], prompt: Job | None) -> None:
        """Who is computed now: they come before all who wait."""
        mean = self._mean_answer_tokens
        left = [
            expected_answer_tokens(job.answer.num_tokens_left, mean - job.answer.num_answer_tokens) for job in streams
        ]
        prompts = (self._expected(prompt),) if prompt else ()
        self._running = Load(tuple(left), prompts)

    def note_answer(self, num_tokens: int) -> None:
        """An answer ended: others may be as long."""
        self._mean_answer_tokens += WEIGHT_OF_NEWEST * (num_tokens - self._mean_answer_tokens)

    def _load(self) -> Load:
        running = self._running
        return Load(running.streams, (*running.prompts, *map(self._expected, self._jobs)))

    def _expected(self, job: Job) -> ExpectedPrompt:
        num_tokens = job.num_tokens_to_compute
        num_answer_tokens = expected_answer_tokens(job.answer.num_tokens_left, self._mean_answer_tokens)
        return ExpectedPrompt(num_tokens, len(job.answer.token_ids) - num_tokens, num_answer_tokens)

    def _check(self, wait_seconds: float) -> None:
        if len(self._jobs) >= self._limits.max_waiting:
            raise BusyError(
                f"{len(self._jobs)} requests are waiting, and no more may: come back in {wait_seconds:.0f} s",
                retry_after_seconds=max(1.0, wait_seconds),
            )
        most = self._limits.max_wait_seconds
        if most is not None and wait_seconds > most:
            retry_after = max(1.0, wait_seconds - most)
            raise BusyError(
                f"the first token would take {wait_seconds:.0f} s, and {most:.0f} s are allowed: come back in "
                f"{retry_after:.0f} s",
                retry_after_seconds=retry_after,
            )
