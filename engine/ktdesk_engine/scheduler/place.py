"""A sequence's place in the cache: the pages that it shares, and its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ktdesk_engine.kv_cache import PAGE_SIZE, CachedSequence
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.pages import PagePool, page_keys


class Place:
    """Held from when a prompt's turn comes until its answer ends."""

    def __init__(self, cache: PrefixCache, pool: PagePool, token_ids: Sequence[int]) -> None:
        """The last token is computed in any case: its logits are what is asked for."""
        self.sequence = CachedSequence()
        self._cache = cache
        self._pool = pool
        self._lease = cache.acquire(page_keys(token_ids[:-1], PAGE_SIZE))
        self._read_lease()

    @property
    def num_shared_tokens(self) -> int:
        """Of the beginning: computed by others, or given to others."""
        return len(self._lease.nodes) * PAGE_SIZE

    @property
    def is_loading(self) -> bool:
        """Whether cached pages are still to come, from host memory or disk."""
        return self._lease.is_loading

    def load_page(self) -> bool:
        """One of these; False where no more will come."""
        is_loaded = self._cache.load_page(self._lease)
        self._read_lease()
        return is_loaded

    def num_missing_pages(self, num_tokens: int) -> int:
        """That so many more tokens need."""
        return math.ceil((self.sequence.length + num_tokens) / PAGE_SIZE) - len(self.sequence.pages)

    def share(self, token_ids: Sequence[int]) -> None:
        """Gives all full pages to the tree. token_ids: at least those that were computed."""
        num_pages = self.sequence.length // PAGE_SIZE
        if num_pages > len(self._lease.nodes):
            keys = page_keys(token_ids[: self.sequence.length], PAGE_SIZE)
            self.sequence.pages[:num_pages] = self._cache.insert(self._lease, keys, self.sequence.pages[:num_pages])

    def pin(self, num_tokens: int) -> None:
        """Keeps the whole pages among so many first tokens before all that others leave."""
        self._cache.pin(self._lease, min(num_tokens // PAGE_SIZE, len(self._lease.nodes)))

    def leave(self) -> None:
        """Its own pages are free; the others stay for whoever comes."""
        for page in self.sequence.pages[len(self._lease.nodes) :]:
            self._pool.give_back(page)
        self._cache.release(self._lease)
        self.sequence.pages.clear()
        self.sequence.length = 0

    def _read_lease(self) -> None:
        self.sequence.pages[:] = self._lease.pages
        self.sequence.length = self.num_shared_tokens
