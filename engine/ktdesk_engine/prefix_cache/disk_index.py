"""Which pages lie on disk, how large they are, and which was not used for longest."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from ktdesk_engine.prefix_cache.page_folder import StoredPage


class DiskIndex:
    """Pages by relative path. A page's place among the others is the time of its last use, not of its writing:
    pages are written late and from the root on, and still leave from the leaves on."""

    def __init__(self, pages: Iterable[StoredPage]) -> None:
        self._pages = {page.relative_path: page for page in pages}
        self._by_age: list[tuple[int, str]] = []
        self._sort()
        self.num_bytes = sum(page.num_bytes for page in self._pages.values())

    def add(self, page: StoredPage) -> None:
        assert page.relative_path not in self._pages
        self._pages[page.relative_path] = page
        self.num_bytes += page.num_bytes
        self._push(page)

    def touch(self, relative_path: str, used_ns: int) -> None:
        page = self._pages[relative_path]._replace(used_ns=used_ns)
        self._pages[relative_path] = page
        self._push(page)

    def remove(self, relative_path: str) -> None:
        self.num_bytes -= self._pages.pop(relative_path).num_bytes

    def oldest(self) -> str:
        """The relative path of the page that was not used for longest. There is one."""
        while True:
            used_ns, path = self._by_age[0]
            if path in self._pages and self._pages[path].used_ns == used_ns:
                return path
            heapq.heappop(self._by_age)

    def __contains__(self, relative_path: str) -> bool:
        return relative_path in self._pages

    def __iter__(self) -> Iterator[StoredPage]:
        return iter(self._pages.values())

    def __len__(self) -> int:
        return len(self._pages)

    def _push(self, page: StoredPage) -> None:
        """What the heap says of a page before is out of date, and thrown away when it comes up."""
        heapq.heappush(self._by_age, (page.used_ns, page.relative_path))
        if len(self._by_age) > 64 + 4 * len(self._pages):
            self._sort()

    def _sort(self) -> None:
        self._by_age = sorted((page.used_ns, page.relative_path) for page in self._pages.values())
