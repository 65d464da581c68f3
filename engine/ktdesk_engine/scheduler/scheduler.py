"""Continuous batching: requests join and leave at any step.

A turn: whoever is gone leaves; prompts are computed, first come first served, as long as those who answer can wait;
everyone who answers gets a token. Knows no model and no threads: a runner computes, and one thread calls `step`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from ktdesk_engine.answer import StreamEvent
from ktdesk_engine.errors import AcceleratorLostError, ContextOverflowError, DeadlineError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.pages import PagePool, page_keys
from ktdesk_engine.scheduler.forecast import SMALLEST_CHUNK
from ktdesk_engine.scheduler.job import Job
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.scheduler.pace import Pace
from ktdesk_engine.scheduler.place import Place
from ktdesk_engine.scheduler.read_rate import ReadRate, WeightBytes
from ktdesk_engine.scheduler.stats import Counters, SchedulerStats
from ktdesk_engine.scheduler.waiting_room import WaitingRoom


class _NotWantedError(Exception):
    """Whoever asked is gone, or has no time left."""


class StepRunner(Protocol):
    """Computes tokens over the cache. A sequence takes the pages it needs from the pool, which has them free."""

    def prefill(
        self, sequence: CachedSequence, token_ids: Sequence[int], before_layer: Callable[[], None] = lambda: None
    ) -> Floats:
        """Adds tokens to a sequence; the logits (V,) of the token after them. before_layer: what it raises ends the
        prompt, of which the sequence then has no more than before."""

    def decode(self, sequences: Sequence[CachedSequence], token_ids: Sequence[int]) -> Floats:
        """Adds a token to each sequence; the logits (S, V) of the tokens after them, until the next call."""


class Scheduler:
    """Who is computed next. `add`, `predicted_wait` and `stats` are for any thread, the rest for one."""

    def __init__(
        self,
        runner: StepRunner,
        cache: PrefixCache,
        pool: PagePool,
        limits: SchedulerLimits,
        largest_chunk: int,
        clock: Callable[[], float] = time.perf_counter,
        weight_bytes: WeightBytes = lambda num_rows: None,
    ) -> None:
        """All pages of the pool are free. largest_chunk: prompt tokens that the runner computes together."""
        self._runner = runner
        self._cache = cache
        self._pool = pool
        self._max_tokens = pool.num_free_pages * PAGE_SIZE
        self._limits = limits
        self._clock = clock
        self._read_rate = ReadRate(weight_bytes)
        self._pace = Pace(limits.max_stall_seconds, largest_chunk)
        self._waiting = WaitingRoom(limits)
        self._prompt: Job | None = None
        """The one whose prompt is being computed."""
        self._streams: list[Job] = []
        """Those who answer."""
        self._counters = Counters()
        self.lost: AcceleratorLostError | None = None
        """After it nobody can be answered."""

    @property
    def has_work(self) -> bool:
        return bool(self._streams or self._prompt or len(self._waiting))

    def add(self, job: Job) -> None:
        """Takes its place in the queue. BusyError where there is none, ContextOverflowError where there never is."""
        num_tokens = len(job.answer.token_ids) + job.answer.num_tokens_left
        if num_tokens > self._max_tokens:
            raise ContextOverflowError(
                f"prompt and answer may have {num_tokens} tokens, but the cache holds {self._max_tokens}: ask for a "
                "shorter answer, or give a larger --context"
            )
        job.num_cached_tokens = self._num_cached_tokens(job)
        self._waiting.enter(job, self._pace.speeds)

    def predicted_wait(self, job: Job) -> float:
        """Seconds until the first token, if it were added now. 0 before anything was measured."""
        job.num_cached_tokens = self._num_cached_tokens(job)
        return self._waiting.predicted_wait(job, self._pace.speeds)

    def step(self) -> bool:
        """One turn. False where nobody is left."""
        self._dismiss()
        self._compute_prompts()
        self._decode()
        self._cache.write_behind()
        self._waiting.note_running(self._streams, self._prompt)
        return self.has_work

    def dismiss_all(self, reason: Exception) -> None:
        """Ends every request, with this."""
        for job in [*self._running(), *self._waiting.those(lambda job: True)]:
            self._fail(job, reason)

    def stats(self) -> SchedulerStats:
        speeds, num_streams = self._pace.speeds, len(self._streams)
        chunk_seconds = speeds.prefill.seconds(speeds.largest_chunk)
        return SchedulerStats(
            num_waiting=len(self._waiting),
            num_prefilling=int(self._prompt is not None),
            num_decoding=num_streams,
            prefill_tok_s=speeds.largest_chunk / chunk_seconds if chunk_seconds else 0.0,
            decode_step_seconds=speeds.decode.seconds(max(1, num_streams)),
            decode_weight_bytes_s=self._read_rate.bytes_s,
            counters=replace(self._counters, num_refused=self._waiting.num_refused),
            cache=self._cache.stats(),
        )

    def _running(self) -> list[Job]:
        return [*self._streams, *([self._prompt] if self._prompt else [])]

    def _dismiss(self) -> None:
        """Who was cancelled, or has no time left, is gone."""
        now = self._clock()
        for job in [*self._running(), *self._waiting.those(lambda job: job.is_cancelled or job.is_late(now))]:
            if job.is_cancelled:
                self._leave(job)
                self._counters.num_cancelled += 1
            elif job.is_late(now):
                self._expire(job)

    def _compute_prompts(self) -> None:
        """At least a little of the first one, and more as long as no stream waits too long."""
        is_first = True
        while (job := self._prompt_in_turn()) is not None:
            assert job.place is not None
            seconds_left = self._seconds_left()
            chunk = self._pace.chunk(job.place.sequence.length, len(self._streams), seconds_left)
            if not is_first and (chunk == 0 or seconds_left <= 0):
                return
            is_first = False
            if not (job.place.is_loading and job.place.load_page()):
                self._prefill(job, job.place, max(chunk, SMALLEST_CHUNK))
            if not self._streams:
                return

    def _decode(self) -> None:
        """A token for everyone who answers."""
        self._make_room_for_streams()
        jobs = list(self._streams)
        if not jobs:
            return
        started = self._clock()
        try:
            self._decode_together(jobs)
        except Exception:
            self._decode_one_by_one(jobs)
        self._note_decoded(len(jobs), self._clock() - started)

    def _decode_together(self, jobs: Sequence[Job]) -> None:
        places = [job.place for job in jobs if job.place is not None]
        token_ids = [job.answer.token_ids[-1] for job in jobs]
        logits = self._runner.decode([place.sequence for place in places], token_ids)
        for job, row in zip(jobs, logits, strict=True):
            self._advance(job, row)

    def _decode_one_by_one(self, jobs: Sequence[Job]) -> None:
        """One of them cannot be computed: the others can."""
        for job in jobs:
            assert job.place is not None
            job.place.sequence.length = len(job.answer.token_ids) - 1
            try:
                self._decode_together([job])
            except Exception as error:
                self._fail(job, error)

    def _prompt_in_turn(self) -> Job | None:
        """The one being computed, or the next, if there is a place and room for it."""
        if self._prompt is None and len(self._streams) < self._limits.max_running:
            job = self._waiting.first()
            if job is not None and self._has_room_for(job):
                self._start(job)
        return self._prompt

    def _start(self, job: Job) -> None:
        self._prompt = job
        self._waiting.take(job)
        job.place = Place(self._cache, self._pool, job.answer.token_ids)
        job.started_at = job.started_at or self._clock()
        self._waiting.note_running(self._streams, job)

    def _has_room_for(self, job: Job) -> bool:
        """Pages for the whole prompt and the first token, beside what others hold."""
        keys = page_keys(job.answer.token_ids, PAGE_SIZE)
        num_pages = len(job.answer.token_ids) // PAGE_SIZE + 1
        return num_pages - self._cache.num_held_pages(keys) <= self._cache.num_available_pages

    def _prefill(self, job: Job, place: Place, chunk: int) -> None:
        """Computes a chunk of a prompt; after the last one, the job answers."""
        token_ids, position = job.answer.token_ids, place.sequence.length
        chunk_ids = token_ids[position : position + chunk]
        self._note_cached(job, position)
        if not self._cache.make_room(place.num_missing_pages(len(chunk_ids))):
            self._put_back(job)
            return
        started = self._clock()
        try:
            logits = self._runner.prefill(place.sequence, chunk_ids, partial(self._check_wanted, job))
        except _NotWantedError:
            self._dismiss()
            return
        except Exception as error:
            self._fail(job, error)
            return
        self._note_prefilled(len(chunk_ids), position, self._clock() - started)
        place.share(token_ids)
        if place.sequence.length == len(token_ids):
            place.pin(job.num_pinned_tokens)
            self._prompt = None
            self._streams.append(job)
            self._advance(job, logits)

    def _check_wanted(self, job: Job) -> None:
        """A chunk may take many seconds: nobody shall wait for one that nobody waits for."""
        if job.is_cancelled or job.is_late(self._clock()):
            raise _NotWantedError

    def _advance(self, job: Job, logits: Floats) -> None:
        """Chooses a job's next token. logits: (V,)."""
        try:
            event = job.answer.next_event(logits)
        except Exception as error:
            self._fail(job, error)
            return
        gap = job.note_token(self._clock())
        self._counters.longest_stall_seconds = max(self._counters.longest_stall_seconds, gap)
        self._counters.num_answer_tokens += len(event.token_ids)
        if event.finish_reason is not None:
            event = job.finished(event)
            self._leave(job)
            self._counters.num_finished += 1
            self._waiting.note_answer(job.answer.num_answer_tokens)
        self._deliver(job, event)

    def _make_room_for_streams(self) -> None:
        """For a token of each. The youngest leave where there is too little, and come back."""
        while not self._cache.make_room(sum(job.place.num_missing_pages(1) for job in self._streams if job.place)):
            self._put_back(max(self._running(), key=lambda job: job.number))

    def _put_back(self, job: Job) -> None:
        """It gives its place away, and waits before all others. What it computed stays cached for as long as it can."""
        self._leave(job)
        self._waiting.put_back(job)
        self._counters.num_preempted += 1

    def _expire(self, job: Job) -> None:
        self._leave(job)
        self._counters.num_expired += 1
        self._deliver(
            job, DeadlineError(f"the answer was not done after {job.deadline_seconds} s: ask for less, or allow more")
        )

    def _fail(self, job: Job, error: Exception) -> None:
        """It ends with this error, and only it; but for one that none can be answered after."""
        if isinstance(error, AcceleratorLostError):
            self.lost = error
        self._leave(job, is_sound=False)
        self._counters.num_failed += 1
        self._deliver(job, error)

    def _leave(self, job: Job, is_sound: bool = True) -> None:
        """Its pages are for others now. is_sound: what it computed since it last shared pages may be kept."""
        if job is self._prompt:
            self._prompt = None
        elif job in self._streams:
            self._streams.remove(job)
        else:
            self._waiting.take(job)
        if job.place is not None:
            if is_sound and not job.place.is_loading:
                job.place.share(job.answer.token_ids)
            job.place.leave()
            job.place = None

    def _deliver(self, job: Job, event: StreamEvent | Exception) -> None:
        """A receiver that fails is one that is gone."""
        try:
            job.deliver(event)
        except Exception:
            job.is_cancelled = True

    def _seconds_left(self) -> float:
        """Until the stream that has waited longest must have its next token."""
        if not self._streams:
            return 0.0
        waited = self._clock() - min(job.token_times[-1] for job in self._streams)
        return self._pace.seconds_left(len(self._streams), waited)

    def _num_cached_tokens(self, job: Job) -> int:
        keys = page_keys(job.answer.token_ids[:-1], PAGE_SIZE)
        return self._cache.lookup(keys).total * PAGE_SIZE

    def _note_cached(self, job: Job, position: int) -> None:
        """Its first chunk is about to be computed: what is before it was cached."""
        if not job.is_counted:
            job.is_counted = True
            job.num_cached_tokens = position
            self._counters.num_prompt_tokens += len(job.answer.token_ids)
            self._counters.num_cached_tokens += position

    def _note_prefilled(self, num_tokens: int, position: int, seconds: float) -> None:
        self._pace.prefilled(num_tokens, position, len(self._streams), seconds)
        self._counters.prefill_seconds += seconds

    def _note_decoded(self, num_streams: int, seconds: float) -> None:
        self._pace.decoded(num_streams, seconds)
        self._read_rate.decoded(num_streams, seconds)
        self._counters.num_decode_steps += 1
        self._counters.num_decode_rows += num_streams
        self._counters.decode_seconds += seconds
