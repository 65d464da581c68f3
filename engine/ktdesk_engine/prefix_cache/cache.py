"""The prefix cache: which pages of keys and values a new sequence need not compute.

    lease = cache.acquire(page_keys(prompt))       # the longest prefix that is there, held
    while cache.load_page(lease): ...              # pages from host memory and disk go into the pool
    ... compute the rest on pages of the sequence's own ...
    cache.insert(lease, keys, pages)               # its full pages become everybody's
    cache.release(lease)

A radix tree whose digit is a page: a node is a page after those on its path from the root. The tree holds what is
in memory (memory_tiers.py). The disk has its own copies, by digest, whatever the tree holds: they are written
behind, and outlive it.

One thread, but for `lookup`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.lease import Lease
from ktdesk_engine.prefix_cache.memory_tiers import MemoryTiers
from ktdesk_engine.prefix_cache.node import Node
from ktdesk_engine.prefix_cache.pages import PagePool, chained_digest
from ktdesk_engine.prefix_cache.stats import CachedPages, CacheStats, DiskStats
from ktdesk_engine.prefix_cache.write_behind import WriteBehind


class PrefixCache:
    """Pages that sequences share, and those kept for sequences to come."""

    def __init__(
        self, pool: PagePool, ram_bytes: int = 0, disk: DiskStore | None = None, fingerprint: bytes = b""
    ) -> None:
        """All pages of the pool are free. fingerprint: the disk's."""
        self._pool = pool
        self._ram_bytes = ram_bytes
        self._disk = disk
        self._root = Node.root(fingerprint)
        self._tiers = MemoryTiers(pool, ram_bytes, self._last_chance)
        self._write_behind = WriteBehind(disk, pool) if disk else None
        self._hits = CachedPages()
        self._num_misses = 0

    @property
    def num_available_pages(self) -> int:
        """Pages of the pool that a sequence can get, now."""
        return self._tiers.num_available_pages

    @property
    def num_spare_pages(self) -> int:
        """Pages of the pool that nobody uses and nothing pins: `leave` frees them."""
        return self._tiers.idle.num_ordinary

    def leave(self, num_pages: int) -> None:
        """Frees so many of the spare pages, the longest unused first."""
        self._tiers.leave(num_pages)

    @property
    def has_unwritten(self) -> bool:
        """Whether the disk should get pages that were not queued yet."""
        return self._write_behind is not None and self._write_behind.has_waiting

    def num_held_pages(self, keys: Sequence[bytes]) -> int:
        """Of these, the pages of the pool that running sequences use: one more user takes nothing from anybody."""
        return sum(node.num_users > 0 and node.page is not None for node in self._path(keys))

    def lookup(self, keys: Sequence[bytes]) -> CachedPages:
        """What `acquire` would find. Changes nothing; any thread may ask, and gets what was so a moment ago."""
        path = list(self._path(keys))
        num_pool = sum(node.page is not None for node in path)
        last = path[-1] if path else self._root
        return CachedPages(num_pool, len(path) - num_pool, self._num_on_disk(last, keys[len(path) :]))

    def acquire(self, keys: Sequence[bytes]) -> Lease:
        """Holds the longest prefix of these pages that the tree has. What is in the pool can be read at once."""
        path = list(self._path(keys))
        for node in path:
            self._tiers.use(node)
        num_pool = sum(node.page is not None for node in path)
        last = path[-1] if path else self._root
        rest = keys[len(path) :]
        on_disk = rest[: self._num_on_disk(last, rest)]
        self._hits = self._hits.plus(pool=num_pool)
        self._num_misses += len(keys) - num_pool
        return Lease(self._root, path[:num_pool], deque(path[num_pool:]), deque(on_disk))

    def load_page(self, lease: Lease) -> bool:
        """One more page of the lease into the pool; False where there is none, or no room for it."""
        is_loaded = self._load_copy(lease) if lease.waiting else bool(lease.disk_keys) and self._load_file(lease)
        if not is_loaded:
            self.stop_loading(lease)
        return is_loaded

    def stop_loading(self, lease: Lease) -> None:
        """The lease is what it has in the pool; the rest is computed."""
        lease.disk_keys.clear()
        self._tiers.unuse(reversed(lease.waiting))
        lease.waiting.clear()

    def make_room(self, num_pages: int) -> bool:
        """Sees to it that so many pages of the pool are free; False, and nothing done, where too many are in use."""
        return self._tiers.make_room(num_pages)

    def insert(self, lease: Lease, keys: Sequence[bytes], pages: Sequence[int]) -> list[int]:
        """Gives the tree the full pages that a sequence has after those of the lease. keys, pages: all, from the
        first on.

        Returns the pages that the sequence has from now on: where the tree had one already, it is that one, and
        the sequence's own is free.
        """
        assert not lease.is_loading
        for key, page in list(zip(keys, pages, strict=True))[len(lease.nodes) :]:
            node = lease.last.children.get(key) or lease.last.add_child(key)
            self._tiers.use(node)
            self._tiers.take_over(node, page)
            lease.nodes.append(node)
        return lease.pages

    def pin(self, lease: Lease, num_pages: int) -> None:
        """Keeps the first pages of a lease before all that is not pinned."""
        if 0 < num_pages <= len(lease.nodes):
            self._tiers.pin(lease.nodes[num_pages - 1])

    def release(self, lease: Lease) -> None:
        """The sequence is done; its pages are kept for others, as the ones used last."""
        self.stop_loading(lease)
        if self._write_behind is not None:
            self._write_behind.touch(lease.nodes)
        self._tiers.unuse(reversed(lease.nodes))
        lease.nodes.clear()

    def write_behind(self) -> bool:
        """Queues one page for the disk; False where none is left, or the disk does not keep up."""
        return self._write_behind is not None and self._write_behind.write_next()

    def clear(self) -> None:
        """Forgets all that nobody uses. What is on disk stays there."""
        self._tiers.evict_idle()

    def close(self, timeout_seconds: float = 60.0) -> None:
        """Writes what the disk should have, as far as the time allows, and lets go of its folder."""
        if self._disk is not None and self._write_behind is not None:
            self._write_behind.flush(timeout_seconds)
            self._disk.close(timeout_seconds)

    def stats(self) -> CacheStats:
        """Any thread may ask."""
        tiers = self._tiers
        return CacheStats(
            page_bytes=self._pool.page_bytes,
            num_free_pages=self._pool.num_free_pages,
            num_shared_pages=tiers.num_pool_nodes,
            num_idle_pages=len(tiers.idle),
            num_pinned_pages=tiers.pins.num_pages,
            ram_bytes=tiers.host.num_bytes,
            ram_limit_bytes=self._ram_bytes,
            num_hit_pages=self._hits,
            num_missed_pages=self._num_misses,
            num_demoted_pages=tiers.num_demoted,
            num_evicted_pages=tiers.num_evicted,
            disk=self._disk_stats(),
        )

    def check_integrity(self) -> None:
        """AssertionError where something is not so that always is. Looks at everything: for tests."""
        self._tiers.check_integrity(self._root.descendants(), self._ram_bytes)

    def _path(self, keys: Iterable[bytes]) -> Iterator[Node]:
        """The nodes that hold the beginning of these pages."""
        node = self._root
        for key in keys:
            child = node.children.get(key)
            if child is None:
                return
            yield child
            node = child

    def _num_on_disk(self, last: Node, keys: Sequence[bytes]) -> int:
        """Of the pages after a node."""
        if self._disk is None:
            return 0
        digest = last.digest
        for count, key in enumerate(keys):
            digest = chained_digest(digest, key)
            if not self._disk.has(digest):
                return count
        return len(keys)

    def _load_copy(self, lease: Lease) -> bool:
        node = lease.waiting[0]
        if node.page is None and not self._tiers.load_copy(node):
            return False
        lease.nodes.append(lease.waiting.popleft())
        self._count_hit(ram=1)
        return True

    def _load_file(self, lease: Lease) -> bool:
        key = lease.disk_keys[0]
        node = lease.last.children.get(key)
        if node is None:
            return self._read_file(lease, key)
        lease.disk_keys.popleft()  # another sequence was here first
        self._tiers.use(node)
        lease.waiting.append(node)
        return self._load_copy(lease)

    def _read_file(self, lease: Lease, key: bytes) -> bool:
        assert self._disk is not None
        digest = chained_digest(lease.last.digest, key)
        content = self._disk.read(digest, key, self._pool.page_bytes)
        if content is None or not self.make_room(1):
            return False
        node = lease.last.add_child(key)
        self._tiers.use(node)
        self._tiers.fill_page(node, content)
        lease.nodes.append(node)
        lease.disk_keys.popleft()
        self._count_hit(disk=1)
        return True

    def _count_hit(self, ram: int = 0, disk: int = 0) -> None:
        self._hits = self._hits.plus(ram=ram, disk=disk)
        self._num_misses -= 1

    def _last_chance(self, node: Node) -> None:
        if self._write_behind is not None:
            self._write_behind.last_chance(node)

    def _disk_stats(self) -> DiskStats | None:
        if self._disk is None or self._write_behind is None:
            return None
        return DiskStats(
            num_bytes=self._disk.num_bytes,
            limit_bytes=self._disk.limit_bytes,
            num_written=self._disk.num_written,
            num_failed=self._disk.num_failed_writes,
            num_lost=self._write_behind.num_lost,
            num_rejected=self._disk.num_rejected,
        )
