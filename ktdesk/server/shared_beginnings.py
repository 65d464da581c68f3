"""What many conversations begin with: the system prompt and the tools, as tokens of the prompt."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from ktdesk.server.wanted import ChatWanted
from ktdesk_engine.errors import EngineError

MAX_REMEMBERED = 64
OTHER_QUESTION = {"role": "user", "content": "?"}


class SharedBeginnings:
    """Finds them by rendering another conversation with the same beginning. Threads may share it."""

    def __init__(self, ids_of: Callable[[ChatWanted], tuple[int, ...]]) -> None:
        """ids_of: the prompt of a conversation."""
        self._ids_of = ids_of
        self._known: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def num_tokens(self, wanted: ChatWanted, ids: Sequence[int]) -> int:
        """Of the prompt `ids` of a conversation; 0 where it has neither system prompt nor tools."""
        first = list(takewhile(lambda message: message.get("role") in ("system", "developer"), wanted.messages))
        if not first and not wanted.tools.offered:
            return 0
        other = self._other_ids(replace(wanted, messages=[*first, OTHER_QUESTION]))
        return next((i for i, pair in enumerate(zip(ids, other, strict=False)) if pair[0] != pair[1]), len(other))

    def _other_ids(self, other: ChatWanted) -> tuple[int, ...]:
        name = json.dumps([other.messages, other.tools.offered, other.variables], default=str)
        with self._lock:
            if name in self._known:
                self._known.move_to_end(name)
                return self._known[name]
        try:
            ids = self._ids_of(other)
        except EngineError:  # a template that takes no such conversation
            ids = ()
        with self._lock:
            self._known[name] = ids
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return ids
