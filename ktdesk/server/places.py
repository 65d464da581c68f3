"""A place for one model in memory: it loads, is used, and is left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from ktdesk.server.deadline import Deadline
from ktdesk.server.errors import NotReadyError, not_now
from ktdesk.server.known_models import KnownModel
from ktdesk.server.served_model import ServedModel
from ktdesk_engine.errors import AcceleratorLostError
from ktdesk_engine.load_progress import LoadProgress

Stage = Literal["loading", "ready", "stopping", "failed"]


@dataclass(frozen=True)
class Health:
    stage: Stage
    percent: float
    reason: str | None = None


class LoadingStoppedError(Exception):
    """The server was told to stop while the model loaded."""


class Place:
    """Of one model. Threads may share it."""

    def __init__(self, known: KnownModel) -> None:
        self.known = known
        self.opened: Future[ServedModel] = Future()
        """Done once it is loaded, or is not to be."""
        self.has_room = False
        """Whoever leaves for it has left."""
        self.num_users = 0
        self.last_used = time.monotonic()
        self.percent = 0.0
        self.seconds_left: float | None = None
        """Of loading, as far as is known."""
        self._lock = threading.Lock()

    @property
    def model(self) -> ServedModel | None:
        """None while it is not ready."""
        is_ready = self.opened.done() and self.opened.exception() is None
        return self.opened.result() if is_ready else None

    @property
    def health(self) -> Health:
        if not self.opened.done():
            return Health("loading", self.percent)
        failure = self.opened.exception() or self.opened.result().answers.failure
        if failure is not None:
            return Health("failed", self.percent, " ".join(str(failure).split()))
        return Health("ready", 100.0)

    @property
    def has_lost_accelerator(self) -> bool:
        return self.model is not None and isinstance(self.model.answers.failure, AcceleratorLostError)

    @property
    def is_idle(self) -> bool:
        """Loaded, and nobody uses it."""
        return self.opened.done() and self.num_users == 0

    @property
    def idle_seconds(self) -> float:
        """Since somebody used it last."""
        return time.monotonic() - self.last_used

    async def ready(self, deadline: Deadline) -> ServedModel:
        """Once it is loaded. Who stops waiting does not end the loading. DeadlineError; NotReadyError where it is not
        to be had."""
        done, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(done.set)

        self.opened.add_done_callback(wake)
        seconds = deadline.seconds_left()  # raises where none is left: before there is something to wait for
        try:
            await asyncio.wait_for(done.wait(), seconds)
        except asyncio.TimeoutError:
            raise deadline.error() from None
        model = self.model
        if model is None:
            raise self._not_loaded()
        if model.answers.failure is not None:
            raise not_now(f"{self.known.name} failed: {self.health.reason}", "failed")
        return model

    @contextmanager
    def used(self) -> Iterator[None]:
        """It is not closed for another as long as this lasts."""
        with self._lock:
            self.num_users += 1
        try:
            yield
        finally:
            with self._lock:
                self.num_users -= 1
            self.last_used = time.monotonic()

    def show(self, progress: LoadProgress) -> None:
        self.percent = 100.0 * progress.done_bytes / max(progress.total_bytes, 1)
        self.seconds_left = progress.remaining_seconds

    def close(self) -> None:
        """Lets go of the model."""
        if self.model is not None:
            self.model.close()
        self.opened = Future()

    def _not_loaded(self) -> NotReadyError:
        failure = self.opened.exception()
        if isinstance(failure, NotReadyError):
            return failure
        if isinstance(failure, LoadingStoppedError):
            return not_now("the server is stopping and takes no more requests", "stopping")
        reason = " ".join(str(failure).split()) or type(failure).__name__
        return NotReadyError(f"{self.known.name} cannot be loaded: {reason}", code="not_loaded")
