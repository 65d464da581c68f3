"""A scheduler over a fake model, and requests that remember what they got. Time is injected: nothing sleeps."""

from __future__ import annotations

from collections.abc import Sequence

from fake_pool import FakePool
from fake_runner import FakeClock, FakeRunner, token_pool

from ktdesk_engine.answer import Answer, StreamEvent
from ktdesk_engine.config import Request, SamplingConfig
from ktdesk_engine.kv_cache import PAGE_SIZE
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.scheduler.job import Job
from ktdesk_engine.scheduler.limits import SchedulerLimits
from ktdesk_engine.scheduler.scheduler import Scheduler
from ktdesk_engine.tokenizer.tokenizer import Tokenizer

GREEDY = SamplingConfig(temperature=0)
CONTEXT = 4096


class Client:
    """One request, and all that was delivered to it, with the times."""

    def __init__(self, prompt: Sequence[int], clock: FakeClock) -> None:
        self.prompt = list(prompt)
        self.events: list[StreamEvent] = []
        self.errors: list[Exception] = []
        self.times: list[float] = []
        self._clock = clock

    def __call__(self, event: StreamEvent | Exception) -> None:
        assert not self.is_done, "an event after the last"
        self.times.append(self._clock.now)
        if isinstance(event, Exception):
            self.errors.append(event)
        else:
            self.events.append(event)

    @property
    def is_done(self) -> bool:
        return bool(self.errors) or bool(self.events and self.events[-1].finish_reason)

    @property
    def token_ids(self) -> list[int]:
        return [token_id for event in self.events for token_id in event.token_ids]

    @property
    def stalls(self) -> list[float]:
        """Seconds between tokens."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


class Office:
    """Everything that a scheduler needs."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        num_pages: int = 64,
        limits: SchedulerLimits | None = None,
        largest_chunk: int = 256,
        ram_bytes: int = 0,
        disk: DiskStore | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.pool: FakePool = token_pool(num_pages)
        self.runner = FakeRunner(self.pool, self.clock)
        self.cache = PrefixCache(self.pool, ram_bytes, disk, bytes(20))
        self.scheduler = Scheduler(
            self.runner, self.cache, self.pool, limits or SchedulerLimits(), largest_chunk, self.clock
        )
        self._tokenizer = tokenizer
        self.clients: list[tuple[Client, Job]] = []

    def ask(
        self,
        prompt: Sequence[int],
        num_tokens: int = 8,
        sampling: SamplingConfig = GREEDY,
        deadline_seconds: float | None = None,
        num_pinned_tokens: int = 0,
    ) -> Client:
        client, job = self.prepare(prompt, num_tokens, sampling, deadline_seconds, num_pinned_tokens)
        self.scheduler.add(job)
        self.clients.append((client, job))
        return client

    def prepare(
        self,
        prompt: Sequence[int],
        num_tokens: int,
        sampling: SamplingConfig = GREEDY,
        deadline_seconds: float | None = None,
        num_pinned_tokens: int = 0,
    ) -> tuple[Client, Job]:
        """A request that is not in the queue yet."""
        client = Client(prompt, self.clock)
        request = Request(tuple(prompt), sampling, num_tokens, ignore_eos=True)
        answer = Answer(request, self._tokenizer, CONTEXT)
        return client, Job(answer, client, self.clock.now, deadline_seconds, num_pinned_tokens)

    def cancel(self, client: Client) -> None:
        for other, job in self.clients:
            if other is client:
                job.is_cancelled = True

    def run(self, max_steps: int = 10_000) -> None:
        """Until nobody is left."""
        for _ in range(max_steps):
            if not self.scheduler.step():
                return
        raise AssertionError("the scheduler does not come to an end")

    def check(self) -> None:
        """No page is lost or owned twice."""
        self.cache.check_integrity()
        stats = self.cache.stats()
        places = [job.place for _, job in self.clients if job.place is not None]
        own = sum(len(place.sequence.pages) - place.num_shared_tokens // PAGE_SIZE for place in places)
        assert stats.num_free_pages + stats.num_shared_pages + own == self.pool.num_pages

    def check_empty(self) -> None:
        """Nobody holds a page."""
        self.check()
        assert self.cache.num_available_pages == self.pool.num_pages
        assert all(job.place is None for _, job in self.clients)
