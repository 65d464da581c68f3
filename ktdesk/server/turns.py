"""Whose turn it is where a model must leave for another: first come, first served, all of a model together."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from pathlib import Path

from ktdesk.server.known_models import KnownModel


class Ticket:
    """Of one request. Made on the loop that it waits in."""

    def __init__(self, known: KnownModel) -> None:
        self.known = known
        self.is_called = False
        """Its model has its turn."""
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    @property
    def path(self) -> Path:
        return self.known.path

    def wake(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, seconds: float) -> None:
        """Until something has changed, or so long."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()


class Line:
    """Not for several threads at once: its owner has a lock."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def join(self, ticket: Ticket) -> None:
        """At the end; in front where it was called already."""
        if ticket.is_called:
            self._tickets.appendleft(ticket)
        else:
            self._tickets.append(ticket)

    def before(self, ticket: Ticket) -> KnownModel | None:
        """Another model, whose turn comes first. None: it is this one's."""
        if ticket.is_called:
            return None
        for other in self._tickets:
            if other is ticket:
                break
            if other.path != ticket.path:
                return other.known
        return None

    def call(self, path: Path) -> None:
        """All who wait for this model now; who comes later waits behind the others."""
        for ticket in self._tickets:
            ticket.is_called |= ticket.path == path

    def leave(self, ticket: Ticket) -> None:
        self._tickets.remove(ticket)
        self.wake()

    def wake(self) -> None:
        """Something has changed: everybody looks whether it is his turn."""
        for ticket in self._tickets:
            ticket.wake()
