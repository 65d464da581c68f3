"""Connections whose request does not come: closed after a while, and the oldest at once where there are too many.

Who is answered stays, however long that takes. Knows what uvicorn keeps of a connection, and no more of uvicorn.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from typing import Protocol

MOST_FILES = 65536
RESERVED_FILES = 64
"""For the model, the cache and all else that is no connection."""


class Cycle(Protocol):
    """A request and its answer."""

    more_body: bool
    """It is not whole yet."""
    response_complete: bool


class Transport(Protocol):
    def close(self) -> None: ...


class Connection(Protocol):
    transport: Transport
    cycle: Cycle | None
    """Of the last request whose headers came."""


class SlowClients:
    """Looks at all connections from time to time."""

    def __init__(
        self,
        limit_seconds: float,
        max_connections: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._max_connections = max_connections
        self._clock = clock
        self._waiting: dict[int, tuple[float, Connection]] = {}
        """Since when for a request, the longest first."""

    def look(self, connections: Iterable[Connection]) -> None:
        now, all_of_them = self._clock(), {id(connection): connection for connection in connections}
        waiting = {key: connection for key, connection in all_of_them.items() if _is_waited_for(connection)}
        before = {key: pair for key, pair in self._waiting.items() if waiting.get(key) is pair[1]}
        self._waiting = before | {key: (now, waiting[key]) for key in waiting if key not in before}
        num_too_many = len(all_of_them) - self._max_connections()
        for number, (since, connection) in enumerate(self._waiting.values()):
            if number < num_too_many or now - since > self._limit_seconds:
                connection.transport.close()


def _is_waited_for(connection: Connection) -> bool:
    cycle = connection.cycle
    return cycle is None or cycle.response_complete or cycle.more_body


def raise_file_limit() -> None:
    """Each connection is a file: as many as the system allows this process, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """So that files are left for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else max(RESERVED_FILES, soft - RESERVED_FILES)
