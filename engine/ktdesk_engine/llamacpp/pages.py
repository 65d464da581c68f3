"""Pages of llama.cpp's cells: what the prefix cache holds, as ids that sequences can take cells from.

A page is PAGE_SIZE positions of a text. A full one that others may use is held by a holder, a sequence of llama.cpp's
that nobody computes; a holder has at most one page at each place of a text. To use a page is to have its cells too.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ktdesk_engine.kv_cache import PAGE_SIZE
from ktdesk_engine.prefix_cache.pages import PageBytes


class Cells(Protocol):
    """What sequences have of past tokens."""

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """The target has these positions of the source too."""

    def remove(self, sequence: int, begin: int = 0, end: int = -1) -> None:
        """Positions from begin to before end, -1: all."""


class Held(NamedTuple):
    holder: int
    number: int
    """Which page of its text it is."""


class LlamaPages:
    """A pool of pages. Counts what is free; knows where the cells of held pages are."""

    def __init__(self, cells: Cells, num_pages: int, page_bytes: int, holders: range) -> None:
        """holders: ids of sequences. Without any, no page can be held."""
        self.page_bytes = page_bytes
        self.num_pages = num_pages
        self._cells = cells
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders = holders
        self._held: dict[int, Held] = {}
        """By page."""
        self._taken: set[Held] = set()

    @property
    def num_free_pages(self) -> int:
        return len(self._free)

    @property
    def num_ready_pages(self) -> int:
        return self.num_free_pages

    def take_page(self) -> int:
        return self._free.pop()

    def give_back(self, page: int) -> None:
        held = self._held.pop(page, None)
        if held is not None:
            self._taken.remove(held)
            self._cells.remove(held.holder, *_positions(held.number))
        self._free.append(page)

    def read_page(self, page: int) -> PageBytes:
        raise NotImplementedError("pages of llama.cpp stay where they are")

    def write_page(self, page: int, content: PageBytes) -> None:
        raise NotImplementedError("pages of llama.cpp stay where they are")

    def is_held(self, page: int) -> bool:
        """Whether other sequences can have it."""
        return page in self._held

    def hold(self, page: int, sequence: int, number: int) -> None:
        """A sequence's page is full. Where all holders have one of that number, it stays the sequence's alone."""
        places = (Held(holder, number) for holder in self._holders)
        held = next((place for place in places if place not in self._taken), None)
        if held is not None:
            self._held[page] = held
            self._taken.add(held)
            self._cells.copy(sequence, held.holder, *_positions(number))

    def lend(self, page: int, sequence: int) -> None:
        """A held page, to a sequence that has nothing at that place."""
        held = self._held[page]
        self._cells.copy(held.holder, sequence, *_positions(held.number))


def _positions(number: int) -> tuple[int, int]:
    return number * PAGE_SIZE, (number + 1) * PAGE_SIZE
