"""A cache of keys and values whose pages have memory only while somebody has them.

What it does not need is the experts' (memory_sharing.py). A page is a number, which sequences and the prefix cache
keep; its place, one of those that the cache has now, is looked up when a step is computed. So pages can move.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Protocol

import numpy as np

from ktdesk_engine.config import CacheType
from ktdesk_engine.kernels import Blocks, Ids, PagedContext
from ktdesk_engine.kv_cache import CacheMemory, KVCache, LayerCacheShape, PageBytes

NOWHERE = -1


class Lender(Protocol):
    """Who has the memory that the cache has not."""

    def lend(self, num_places: int) -> None:
        """Gives so many more places, by `add_places`."""


class SparePages(Protocol):
    """Pages that nobody uses now, kept for sequences to come."""

    @property
    def num_spare_pages(self) -> int: ...

    def leave(self, num_pages: int) -> None:
        """Gives so many of them back."""


class SharedKVCache(KVCache):
    """Its pages are as many as asked for; its places the last of as many, from `first_place` on."""

    def __init__(
        self,
        shapes: SequenceOf[LayerCacheShape],
        context: int,
        cache_type: CacheType,
        num_sequences: int,
        device: CacheMemory,
    ) -> None:
        """It has no place yet: `lie_in` gives it some."""
        super().__init__(shapes, context, cache_type, num_sequences, device=None)
        self.lender: Lender | None = None
        self.spare: SparePages | None = None
        self.num_kept_places = 0
        """As long as it has fewer, it lends rather than let spare pages leave."""
        self.first_place = self.num_pages
        self._device = device
        self._place_of: Ids = np.full(self.num_pages, NOWHERE, np.int32)
        self._free_places: list[int] = []
        """In order: the last are taken first."""
        self._memory: Blocks | None = None
        """(num_pages, page_bytes)"""
        self._lifted: dict[int, PageBytes] = {}
        """What pages hold while they have no memory."""
        self._peak = 0

    @property
    def num_places(self) -> int:
        return self.num_pages - self.first_place

    @property
    def num_ready_pages(self) -> int:
        """Free pages that need not displace what is kept for sequences to come."""
        num_to_lend = max(self.num_kept_places - self.num_places, 0)
        return min(self.num_free_pages, len(self._free_places) + num_to_lend)

    @property
    def num_busy_pages(self) -> int:
        """Not free, and not spare."""
        num_spare = 0 if self.spare is None else self.spare.num_spare_pages
        return self.num_used_pages - num_spare

    @property
    def num_used_pages(self) -> int:
        return self.num_pages - self.num_free_pages

    def peak(self) -> int:
        """The most busy pages at a time since it was asked last."""
        busy = self.num_busy_pages
        peak, self._peak = max(self._peak, busy), busy
        return peak

    def lie_in(self, memory: Blocks, first_place: int) -> None:
        """memory (num_pages, page_bytes): of which places from the first one on are the cache's. What was lifted lies
        there then."""
        offset = 0

        def part(*sizes: int) -> Blocks:
            nonlocal offset
            start, offset = offset, offset + int(np.prod(sizes))
            return memory[:, start:offset].reshape(len(memory), *sizes)

        self._lie_in(part)
        self._memory = memory
        self.first_place = first_place
        self._free_places = list(range(first_place, self.num_pages))
        for page, content in self._lifted.items():
            self._place_of[page] = self._free_places.pop()
            self.write_page(page, content)
        self._lifted = {}

    def lift(self) -> None:
        """From now on pages have no memory, until `lie_in`. May be called again."""
        if self._memory is not None:
            pages = np.flatnonzero(self._place_of != NOWHERE).tolist()
            self._lifted = {page: self.read_page(page) for page in pages}
            self._keys, self._values, self._memory = [], [], None
            self._place_of[:] = NOWHERE
            self._free_places = []

    @property
    def num_lifted_pages(self) -> int:
        return len(self._lifted)

    def add_places(self, first_place: int) -> None:
        """Those from this one on are the cache's now."""
        self._free_places[:0] = range(first_place, self.first_place)
        self.first_place = first_place

    def give_up_places(self, first_place: int) -> None:
        """Those before this one. Pages that lie there move; spare ones leave where there are too many."""
        too_many = self.num_used_pages - (self.num_pages - first_place)
        if too_many > 0 and self.spare is not None:
            self.spare.leave(too_many)
        self._free_places = [place for place in self._free_places if place >= first_place]
        for page in np.flatnonzero((self._place_of != NOWHERE) & (self._place_of < first_place)):
            self._move(int(page), self._free_places.pop())
        self.first_place = first_place

    def give_back(self, page: int) -> None:
        if self._lifted.pop(page, None) is None:
            insort(self._free_places, int(self._place_of[page]))
            self._place_of[page] = NOWHERE
        super().give_back(page)

    def read_page(self, page: int) -> PageBytes:
        return self._lifted[page].copy() if page in self._lifted else self._device.read_memory(self._of(page))

    def write_page(self, page: int, content: PageBytes) -> None:
        self._device.write_memory(self._of(page), content)

    def places(self, pages: list[int]) -> list[int]:
        found: list[int] = self._place_of[pages].tolist()
        return found

    def placed(self, context: PagedContext) -> PagedContext:
        """Behind the pages of a sequence, where no token looks, may stand any place."""
        return replace(context, page_tables=np.maximum(self._place_of[context.page_tables], 0))

    def _take(self, num_pages: int) -> list[int]:
        num_missing = num_pages - len(self._free_places)
        if num_missing > 0:
            assert self.lender is not None
            self.lender.lend(num_missing)
        pages = super()._take(num_pages)
        for page in pages:
            self._place_of[page] = self._free_places.pop()
        self._peak = max(self._peak, self.num_busy_pages)
        return pages

    def _move(self, page: int, place: int) -> None:
        assert self._memory is not None
        self._memory[place] = self._of(page)
        self._place_of[page] = place

    def _of(self, page: int) -> Blocks:
        """(page_bytes,)"""
        assert self._memory is not None
        memory: Blocks = self._memory[int(self._place_of[page])]
        return memory
