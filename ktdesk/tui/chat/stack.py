"""Messages one below the other: which line is whose, without drawing what nobody sees."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from ktdesk.tui.chat.entry import Entry, EntryStyles


class Stack:
    """A height is guessed until its entry is drawn. Lines count from the top of the first entry."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = list(entries)
        self._index = {entry.message.message_id: index for index, entry in enumerate(self.entries)}
        self._heights = [0] * len(self.entries)
        self._is_exact = [False] * len(self.entries)
        self._ends = [0] * len(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def height(self) -> int:
        return self._ends[-1] if self._ends else 0

    def index_of(self, message_id: int) -> int | None:
        return self._index.get(message_id)

    def find(self, message_id: int) -> Entry | None:
        index = self.index_of(message_id)
        return None if index is None else self.entries[index]

    def at(self, line: int) -> int:
        """The entry that has this line; their number where it is below all of them."""
        return bisect_right(self._ends, line)

    def top(self, index: int) -> int:
        return self._ends[index] - self._heights[index]

    def end(self, index: int) -> int:
        return self._ends[index]

    def between(self, top: int, end: int) -> range:
        """The entries of these lines; of some entry always."""
        last = len(self) - 1
        return range(min(self.at(top), last), min(self.at(end), last) + 1)

    def pending(self, indexes: Iterable[int]) -> list[int]:
        """Those of them that are not drawn as they are now."""
        return [index for index in indexes if not (self._is_exact[index] and self.entries[index].is_drawn)]

    def guessed(self) -> list[int]:
        """Those whose height is not known yet."""
        return [index for index, is_exact in enumerate(self._is_exact) if not is_exact]

    def guess(self, width: int) -> None:
        """All heights anew."""
        self._is_exact = [False] * len(self)
        self._heights = [entry.estimated_height(width) for entry in self.entries]
        self._ends = list(accumulate(self._heights))

    def draw(self, indexes: Iterable[int], width: int, styles: EntryStyles) -> None:
        for index in indexes:
            self._draw(index, width, styles)
        self._ends = list(accumulate(self._heights))

    def draw_from_the_end(self, num_lines: int, width: int, styles: EntryStyles) -> None:
        """Until the last so many lines are drawn."""
        for index in reversed(range(len(self))):
            num_lines -= self._draw(index, width, styles)
            if num_lines < 0:
                break
        self._ends = list(accumulate(self._heights))

    def _draw(self, index: int, width: int, styles: EntryStyles) -> int:
        self._heights[index] = len(self.entries[index].lines(width, styles))
        self._is_exact[index] = True
        return self._heights[index]
