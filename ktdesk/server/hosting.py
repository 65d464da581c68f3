"""The models of a server: loaded when they are asked for, and closed to make room for others."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ktdesk.server.deadline import Deadline
from ktdesk.server.errors import NotYetError, not_now, not_yet
from ktdesk.server.known_models import KnownModel, KnownModels
from ktdesk.server.memory_guard import MemoryGuard
from ktdesk.server.model_headers import ModelHeaders
from ktdesk.server.opening import OpenSettings, Tell, open_model
from ktdesk.server.places import Health, LoadingStoppedError, Place
from ktdesk.server.served_model import ServedModel
from ktdesk.server.settings import ServerSettings
from ktdesk.server.turns import Line, Ticket
from ktdesk_engine.errors import BusyError, ResourceError
from ktdesk_engine.load_progress import LoadProgress


class ModelHost:
    """At most so many models at a time, each loaded on a thread of its own when a request asks for it.

    Where there is no place left, the one that nobody has used for longest leaves. Those in use stay: the request waits
    until one is idle, and who asks for those meanwhile waits behind it. What waits for too long is refused.
    """

    def __init__(
        self,
        known: KnownModels,
        settings: ServerSettings,
        how: OpenSettings,
        tell: Tell = lambda message: None,
        guard: MemoryGuard | None = None,
    ) -> None:
        """guard: None loads whatever is asked for."""
        self.known = known
        self.settings = settings
        self._how = how
        self._tell = tell
        self._guard = guard
        self._is_stopping = False
        self._stop_reason: str | None = None
        self._places: dict[Path, Place] = {}
        self._line = Line()
        self._lock = threading.Lock()
        """Held while places come and go, and who waits for one."""
        self._loader = ThreadPoolExecutor(1, "load")
        self.headers = ModelHeaders()
        self._first: Place | None = None
        """While the own model is loaded at the start."""
        self.failure: BaseException | None = None
        """What kept the own model from being loaded at the start."""

    def start(self, when_done: Callable[[], None] = lambda: None) -> None:
        """Loads the own model. when_done: called on the loading thread, whether it went well or not."""
        with self._lock:
            place = self._first = self._place(self.known.own)

        def done(_: object) -> None:
            failure = place.opened.exception()
            self.failure = None if isinstance(failure, LoadingStoppedError) else failure
            self._first = None
            when_done()

        place.opened.add_done_callback(done)

    @property
    def name(self) -> str:
        return self.known.own.name

    @property
    def path(self) -> Path:
        return self.known.own.path

    @property
    def health(self) -> Health:
        """Ready where one model is; or where none is loaded now, and one will be for who asks."""
        if self._is_stopping:
            return Health("stopping", 100.0, self._stop_reason)
        if self._first is not None:
            return self._first.health
        if self.failure is not None:
            return Health("failed", 0.0, " ".join(str(self.failure).split()))
        stages = {health.stage: health for health in self.healths.values()}
        return stages.get("ready") or stages.get("loading") or stages.get("failed") or Health("ready", 100.0)

    @property
    def in_memory(self) -> list[KnownModel]:
        """Those that have a place, be it that they load."""
        return [place.known for place in list(self._places.values())]

    @property
    def healths(self) -> dict[str, Health]:
        """Of the models that have a place, by name."""
        return {place.known.name: place.health for place in list(self._places.values())}

    def health_of(self, known: KnownModel) -> Health | None:
        """None: it is not in memory."""
        place = self._places.get(known.path)
        return None if place is None else place.health

    def loaded(self, known: KnownModel) -> ServedModel | None:
        """None while it is not ready."""
        place = self._places.get(known.path)
        return None if place is None else place.model

    @property
    def models(self) -> list[ServedModel]:
        """Those that are ready."""
        return [place.model for place in list(self._places.values()) if place.model is not None]

    @property
    def num_in_line(self) -> int:
        """Requests whose model waits for others to leave."""
        return len(self._line)

    def held(self, uses: ExitStack, known: KnownModel) -> ServedModel | None:
        """The model where it is ready, without loading it or waiting for a turn. It stays until `uses` is closed."""
        with self._lock:
            place = self._places.get(known.path)
            if place is None or place.model is None:
                return None
            uses.enter_context(self._used(place))
            return place.model

    async def model(self, uses: ExitStack, name: str | None, deadline: Deadline | None = None) -> ServedModel:
        """The model of that name, or the own; loaded where it is not. It stays until `uses` is closed.

        NotFoundError, NotReadyError, BusyError, DeadlineError, or what keeps it from being loaded.
        """
        deadline = deadline or Deadline(self.settings.deadline_seconds)
        ticket = Ticket(self.known.find(name))
        wait_until = time.monotonic() + self._most_seconds_in_line
        while True:
            place = await self._place_in_turn(ticket, uses, deadline, wait_until)
            try:
                return await place.ready(deadline)
            except NotYetError:
                if time.monotonic() > wait_until:
                    raise

    async def _place_in_turn(self, ticket: Ticket, uses: ExitStack, deadline: Deadline, wait_until: float) -> Place:
        """The model's, as soon as it is its turn and there is one."""
        self._join_line(ticket)
        try:
            while True:
                try:
                    with self._lock:
                        return self._taken(ticket, uses)
                except NotYetError:
                    seconds_left = wait_until - time.monotonic()
                    if seconds_left <= 0:
                        raise
                allowed = deadline.seconds_left()
                await ticket.wait(seconds_left if allowed is None else min(seconds_left, allowed))
        finally:
            with self._lock:
                self._line.leave(ticket)

    def _taken(self, ticket: Ticket, uses: ExitStack) -> Place:
        """With the lock held. NotYetError where it is not its turn."""
        known, other = ticket.known, self._line.before(ticket)
        if other is not None:
            raise not_yet(f"{known.name} comes after {other.name}, which was asked for before; try again", "busy")
        self._check_others_have_room(known)
        place = self._place(known)
        self._check_queue(place)
        self._line.call(known.path)
        uses.enter_context(self._used(place))
        return place

    @contextmanager
    def _used(self, place: Place) -> Iterator[None]:
        try:
            with place.used():
                yield
        finally:
            self._wake_line()

    def _wake_line(self) -> None:
        with self._lock:
            self._line.wake()

    def _join_line(self, ticket: Ticket) -> None:
        limits = self._how.limits
        with self._lock:
            if len(self._line) >= limits.max_waiting + limits.max_running:
                raise BusyError(f"{len(self._line)} requests wait for another model: try again", 1.0)
            self._line.join(ticket)

    @property
    def _most_seconds_in_line(self) -> float:
        given = (self.settings.turn_wait_seconds, self._how.limits.max_wait_seconds)
        return min(seconds for seconds in given if seconds is not None)

    def close_unused(self, idle_seconds: float) -> None:
        """Those of several that nobody has asked for so long."""
        with self._lock:
            others = sorted(self._places.values(), key=lambda place: place.last_used)[:-1]
            leaving = [place for place in others if place.is_idle and place.idle_seconds > idle_seconds]
            for place in leaving:
                del self._places[place.known.path]
            self._line.wake()
        if leaving:
            self._loader.submit(self._close, leaving)

    def keep_uses(self) -> None:
        """Of all that are in memory. Takes its time."""
        for model in self.models:
            model.keep_use()

    def let_go(self, known: KnownModel) -> None:
        """It leaves the memory, if it is there. NotReadyError where somebody uses it."""
        with self._lock:
            place = self._places.get(known.path)
            if place is None:
                return
            if not place.is_idle:
                raise not_now(f"{known.name} is answering or loads, and stays", "busy")
            del self._places[known.path]
            self._line.wake()
        self._loader.submit(self._close, [place])

    def stop_accepting(self, reason: str = "") -> None:
        """The first reason counts."""
        self._stop_reason = self._stop_reason or reason or None
        self._is_stopping = True

    def close(self, finish_seconds: float | None = None) -> None:
        """Answers that run may go on so long; None: as the settings say. May be called again, to make it shorter."""
        self._is_stopping = True
        self._wake_line()
        self._loader.shutdown()
        until = time.monotonic() + (self.settings.finish_seconds if finish_seconds is None else finish_seconds)
        for model in self.models:
            model.close(max(0.0, until - time.monotonic()))

    def _place(self, known: KnownModel) -> Place:
        """The model's, which is ready or begins to load. With the lock held."""
        if self._is_stopping:
            raise not_now("the server is stopping and takes no more requests", "stopping")
        place = self._places.get(known.path)
        if place is not None and place.has_lost_accelerator and self.settings.falls_back:
            self._leave_accelerator(place)
            place = None
        if place is None:
            self._check_free(known)
            place = self._places[known.path] = Place(known)
            place.opened.add_done_callback(lambda _: self._wake_line())
            self._loader.submit(self._load, place)
        return place

    def _leave_accelerator(self, place: Place) -> None:
        """All models are loaded without one from now on. With the lock held."""
        self._tell(f"the accelerator is lost: {place.known.name} is loaded anew, on the CPU")
        self._how = replace(self._how, config=self._how.config.on_cpu)
        del self._places[place.known.path]
        self._loader.submit(self._close, [place])

    def _check_free(self, known: KnownModel) -> None:
        """NotYetError where no place is free or can be made so now."""
        places = list(self._places.values())
        loading = [place for place in places if not place.opened.done()]
        if loading:
            what = f"{loading[0].known.name} loads ({loading[0].percent:.0f} %)"
            raise not_yet(f"{known.name} cannot be loaded now: {what}; try again", "loading", loading[0].seconds_left)
        in_use = [place for place in places if not place.is_idle]
        if len(in_use) >= self.settings.max_models:
            names = " and ".join(place.known.name for place in in_use)
            message = f"{known.name} cannot be loaded now: {names} is answering, and --models-loaded is"
            raise not_yet(f"{message} {self.settings.max_models}; try again when nothing runs", "busy")

    def _check_others_have_room(self, known: KnownModel) -> None:
        """NotYetError while it is not known who leaves for another that is to be loaded."""
        for place in self._places.values():
            if not place.has_room and place.known.path != known.path:
                raise not_yet(f"{place.known.name} begins to load; try again", "loading")

    def _check_queue(self, place: Place) -> None:
        """BusyError where too many wait for it to be loaded, or would wait too long."""
        if place.opened.done():
            return
        limits, seconds = self._how.limits, place.seconds_left or 0.0
        what = f"{place.known.name} loads ({place.percent:.0f} %)"
        if place.num_users >= limits.max_waiting + limits.max_running:
            raise BusyError(f"{what}, and {place.num_users} requests are waiting for it: try again", max(seconds, 1.0))
        if limits.max_wait_seconds is not None and seconds > limits.max_wait_seconds:
            raise BusyError(f"{what}, and that takes {seconds:.0f} s more: try again", seconds)

    def _load(self, place: Place) -> None:
        """On the loading thread."""
        try:
            leaving = self._make_room(place)
            place.has_room = True
            self._wake_line()
            self._close(leaving)

            def show(progress: LoadProgress) -> None:
                if self._is_stopping:
                    raise LoadingStoppedError
                place.show(progress)

            self._tell_if_other(place, f"{place.known.name} loads")
            opened = open_model(place.known.path, self._how, show, self._tell)
            model = ServedModel(place.known.name, opened, self.settings)
        except BaseException as error:
            self._tell_failure(place, error)
            with self._lock:
                self._places.pop(place.known.path, None)
            place.opened.set_exception(error)
        else:
            self._tell_if_other(place, f"{place.known.name} is ready")
            place.opened.set_result(model)

    def _make_room(self, place: Place) -> Sequence[Place]:
        """Those that leave for it: as few as its size and the number of places allow, the longest unused first.

        Nobody leaves where that would not be enough: ResourceError.
        """
        problem = None
        for leaving in self._choices(place):
            problem = self._problem(place, leaving)
            if problem is None:
                return self._take_out(place, leaving)
        raise ResourceError(f"{problem} (--no-memory-guard loads it all the same)")

    def _choices(self, place: Place) -> Iterator[Sequence[Place]]:
        with self._lock:
            others = [other for other in self._places.values() if other is not place]
        idle = sorted((other for other in others if other.is_idle), key=lambda other: other.last_used)
        num_least = max(0, len(others) + 1 - self.settings.max_models)
        for count in range(min(num_least, len(idle)), len(idle) + 1):
            yield idle[:count]

    def _problem(self, place: Place, leaving: Sequence[Place]) -> str | None:
        """Of memory, once those have left."""
        if self._guard is None:
            return None
        others = [other for other in list(self._places.values()) if other is not place]
        return self._guard.problem(place.known.path, [other.known.path for other in others if other not in leaving])

    def _take_out(self, place: Place, leaving: Sequence[Place]) -> Sequence[Place]:
        """NotYetError where one of them is used again."""
        with self._lock:
            busy = [other.known.name for other in leaving if not other.is_idle]
            if busy or len(self._places) - len(leaving) > self.settings.max_models:
                names = " and ".join(busy) or "another model"
                raise not_yet(f"{place.known.name} cannot be loaded now: {names} is answering; try again", "busy")
            for other in leaving:
                del self._places[other.known.path]
        return leaving

    def _close(self, places: Sequence[Place]) -> None:
        """Nobody uses them any more. What they held is free afterwards."""
        for place in places:
            self._tell(f"{place.known.name} leaves the memory")
            place.close()
        if places:
            gc.collect()  # an engine is part of circles

    def _tell_failure(self, place: Place, error: BaseException) -> None:
        if not isinstance(error, LoadingStoppedError):
            self._tell_if_other(place, f"{place.known.name} cannot be loaded: {' '.join(str(error).split())}")

    def _tell_if_other(self, place: Place, message: str) -> None:
        """Than the one of the start, of which who runs the server tells."""
        if place is not self._first:
            self._tell(message)
