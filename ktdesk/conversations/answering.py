"""An answer on its way: read from the server in one thread, saved from another, looked at from a third."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from ktdesk.chat_stream import AnswerEnd, CallDelta, Delta
from ktdesk.conversations.errors import ConversationError
from ktdesk.conversations.messages import Measured, Message, State, ToolCall
from ktdesk.errors import AppError

SECONDS_BETWEEN_SAVES = 0.5
"""A kill loses at most what came since."""


class Stream(Protocol):
    def __iter__(self) -> Iterator[Delta | AnswerEnd]: ...

    def stop(self) -> None: ...


@dataclass
class _Call:
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class Answering:
    """Folds a stream into a message. `message` may be looked at from any thread."""

    def __init__(
        self,
        stream: Stream,
        message: Message,
        save: Callable[[Message], None],
        when_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """save raises ConversationError where it cannot. when_changed is called on the reading thread."""
        self._stream = stream
        self._begun = message
        self._save = save
        self._when_changed = when_changed
        self._lock = threading.Lock()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._started = time.monotonic()
        self._first: float | None = None
        self._last = self._started
        self._reasoned: float | None = None
        self._num_deltas = 0
        self._end: AnswerEnd | None = None
        self._failure: AppError | None = None
        self._ended = threading.Event()
        self.save_error: ConversationError | None = None
        """Why the last save did not go well; None where it did."""
        self._threads = [
            threading.Thread(target=job, name=name, daemon=True)
            for job, name in ((self._read, "answer"), (self._save_now_and_then, "save"))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """At once; what came stays."""
        self._stream.stop()

    def join(self, timeout: float | None = None) -> None:
        """Until all is read and saved."""
        for thread in self._threads:
            thread.join(timeout)

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def has_ended(self) -> bool:
        """Nothing more comes; the last save may still run."""
        return self._ended.is_set()

    @property
    def waited_seconds(self) -> float:
        """For the first token: until it came, or until now."""
        return (self._first or time.monotonic()) - self._started

    @property
    def failure(self) -> AppError | None:
        return self._failure

    @property
    def message(self) -> Message:
        """As far as it came."""
        with self._lock:
            for pieces in (self._content, self._reasoning):
                pieces[:] = ["".join(pieces)]
            state: State = "streaming" if not self._ended.is_set() else self._final_state()
            return replace(
                self._begun,
                content=self._content[0],
                reasoning=self._reasoning[0],
                reasoning_seconds=self._reasoning_seconds(),
                state=state,
                failure="" if self._failure is None else str(self._failure),
                finish_reason="" if self._end is None else self._end.finish_reason,
                calls=tuple(ToolCall(call.call_id, call.name, call.arguments) for call in self._calls.values()),
                measured=self._measured(),
            )

    def _read(self) -> None:
        try:
            for event in self._stream:
                self._add(event)
                self._when_changed()
        except AppError as error:
            self._failure = error
        finally:
            self._ended.set()
            self._when_changed()

    def _add(self, event: Delta | AnswerEnd) -> None:
        now = time.monotonic()
        with self._lock:
            if isinstance(event, AnswerEnd):
                self._end = event
                return
            if not (event.content or event.reasoning or event.calls):
                return
            self._first, self._last = self._first or now, now
            self._num_deltas += 1
            self._reasoning.append(event.reasoning)
            self._content.append(event.content)
            if (event.content or event.calls) and self._reasoned is None:
                self._reasoned = now
            for delta in event.calls:
                self._add_call(delta)

    def _add_call(self, delta: CallDelta) -> None:
        call = self._calls.setdefault(delta.index, _Call())
        call.call_id = call.call_id or delta.call_id
        call.name = call.name or delta.name
        call.arguments += delta.arguments

    def _save_now_and_then(self) -> None:
        """The last time when nothing more comes."""
        saved: Message | None = None
        while True:
            is_last = self._ended.wait(SECONDS_BETWEEN_SAVES)
            now = self.message
            if now != saved:
                try:
                    self._save(now)
                    saved, self.save_error = now, None
                except ConversationError as error:
                    self.save_error = error
                self._when_changed()
            if is_last:
                return

    def save_again(self) -> None:
        """Once there is room. Raises ConversationError."""
        self._save(self.message)
        self.save_error = None

    def _final_state(self) -> State:
        if self._failure is not None:
            return "failed"
        return "stopped" if self._end is None else "done"

    def _reasoning_seconds(self) -> float:
        if not self._reasoning[0] or self._first is None:
            return 0.0
        return (self._reasoned or self._last) - self._first

    def _measured(self) -> Measured:
        """Where the server did not say, as seen from here: an event is about a token."""
        first = 0.0 if self._first is None else self._first - self._started
        if self._end is None:
            decode = self._last - self._first if self._first is not None else 0.0
            return Measured(num_answer_tokens=self._num_deltas, first_token_seconds=first, decode_seconds=decode)
        end = self._end
        return Measured(
            end.num_prompt_tokens,
            end.num_answer_tokens,
            end.num_cached_tokens,
            first,
            end.prefill_seconds or first,
            end.decode_seconds or self._last - (self._first or self._last),
        )
