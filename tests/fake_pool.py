"""A pool of pages without a model: a page holds a few bytes, so that what is read can be told from what is not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.lease import Lease
from ktdesk_engine.prefix_cache.pages import PageBytes

PAGE_BYTES = 8


class FakePool:
    """Hands out each page once, and takes it back once."""

    def __init__(self, num_pages: int, page_bytes: int = PAGE_BYTES) -> None:
        self.page_bytes = page_bytes
        self.num_pages = num_pages
        self.contents: dict[int, PageBytes] = {}
        """Of the pages that are out."""
        self._free = list(range(num_pages))

    @property
    def num_free_pages(self) -> int:
        return len(self._free)

    @property
    def num_ready_pages(self) -> int:
        return self.num_free_pages

    def take_page(self) -> int:
        page = self._free.pop()
        self.contents[page] = np.zeros(self.page_bytes, np.uint8)
        return page

    def give_back(self, page: int) -> None:
        del self.contents[page]
        self._free.append(page)

    def read_page(self, page: int) -> PageBytes:
        return self.contents[page].copy()

    def write_page(self, page: int, content: PageBytes) -> None:
        self.contents[page][:] = content


def content_of(keys: Sequence[bytes], page_bytes: int = PAGE_BYTES) -> PageBytes:
    """What a model would write to the last of these pages: it depends on all of them."""
    digest = hashlib.shake_128(b"|".join(keys)).digest(page_bytes)
    return np.frombuffer(digest, np.uint8)


class FakeSequence:
    """A request of these pages: takes what the cache has, checks it, computes the rest, and leaves it to others."""

    def __init__(self, cache: PrefixCache, pool: FakePool, keys: Sequence[bytes]) -> None:
        self._cache = cache
        self._pool = pool
        self.keys = list(keys)
        self.lease: Lease = cache.acquire(self.keys)
        while cache.load_page(self.lease):
            continue
        self.num_hits = len(self.lease.nodes)
        self.pages = self.lease.pages
        self.check()

    def compute(self, num_pages: int) -> bool:
        """So many pages more, for everybody. False where the pool has no room."""
        if not self._cache.make_room(num_pages):
            return False
        for _ in range(num_pages):
            page = self._pool.take_page()
            self.pages.append(page)
            self._pool.write_page(page, content_of(self.keys[: len(self.pages)], self._pool.page_bytes))
        self.pages = self._cache.insert(self.lease, self.keys[: len(self.pages)], self.pages)
        return True

    def finish(self) -> bool:
        """Computes what is missing, as far as there is room. Whether all of it was."""
        while len(self.pages) < len(self.keys):
            if not self.compute(1):
                return False
        return True

    def check(self) -> None:
        """Every page holds what was computed for these keys."""
        for count, page in enumerate(self.pages, start=1):
            want = content_of(self.keys[:count], self._pool.page_bytes)
            assert self._pool.contents[page].tobytes() == want.tobytes()

    def release(self) -> None:
        self._cache.release(self.lease)
        self.pages = []


def run_request(cache: PrefixCache, pool: FakePool, keys: Sequence[bytes]) -> int:
    """Serves one request from beginning to end; how many of its pages were cached."""
    sequence = FakeSequence(cache, pool, keys)
    assert sequence.finish()
    sequence.check()
    sequence.release()
    return sequence.num_hits
