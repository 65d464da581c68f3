"""How the thread that reads an answer wakes the app that draws it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ktdesk.tui.chat.session import ChatSession


class AnswerSignals:
    """Made on the app's loop."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def tell(self) -> None:
        """On the reading thread: wakes the app once for all that came since it looked."""
        if not self._changed.is_set() or self._is_over:
            with suppress(RuntimeError):  # the app has left
                self._loop.call_soon_threadsafe(self._set)

    def look(self) -> None:
        """The app takes what is there: what comes from now on wakes it again."""
        self._changed.clear()

    async def wait(self, pause_seconds: float, most_seconds: float) -> None:
        """So long at least, then for something new, but not longer than most; the end cuts both short."""
        await _first_of(self._ended, seconds=pause_seconds)
        await _first_of(self._changed, self._ended, seconds=most_seconds)

    @property
    def _is_over(self) -> bool:
        return self._session.answering is not None and self._session.answering.has_ended

    def _set(self) -> None:
        self._changed.set()
        if self._is_over:
            self._ended.set()


async def _first_of(*events: asyncio.Event, seconds: float) -> None:
    """Until one of them is set, or so long."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
