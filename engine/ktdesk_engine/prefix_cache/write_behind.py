"""What the disk should have and has not yet."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence

from ktdesk_engine.prefix_cache.disk_store import DiskStore
from ktdesk_engine.prefix_cache.node import Node
from ktdesk_engine.prefix_cache.pages import PagePool


class WriteBehind:
    """Nodes wait here until the disk's thread has room for them."""

    def __init__(self, disk: DiskStore, pool: PagePool) -> None:
        self.num_lost = 0
        """Pages that left memory before the disk could take them."""
        self._disk = disk
        self._pool = pool
        self._waiting: OrderedDict[Node, None] = OrderedDict()
        """The first ones first."""
        self._used_ns = 0

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def touch(self, path: Sequence[Node]) -> None:
        """A path, from the root on, was used: its files leave later than others, those near the root last."""
        self._used_ns = max(time.time_ns(), self._used_ns + len(path) + 1)
        for depth, node in enumerate(path):
            node.used_ns = self._used_ns - depth
            if not self._disk.has(node.digest):
                self._waiting[node] = None
        self._disk.touch((node.digest, node.used_ns) for node in path)

    def write_next(self) -> bool:
        """Queues one page; False where none waits, or the disk does not keep up."""
        while self._waiting and self._disk.has_room:
            node, _ = self._waiting.popitem(last=False)
            if self._write(node):
                return True
        return False

    def flush(self, timeout_seconds: float) -> None:
        """Queues all that waits, as far as the time allows."""
        until = time.monotonic() + timeout_seconds
        while self._waiting and (left := until - time.monotonic()) > 0:
            if not self.write_next():
                self._disk.flush(left)

    def last_chance(self, node: Node) -> None:
        """For a page that leaves memory."""
        if node in self._waiting:
            del self._waiting[node]
            self.num_lost += not (self._disk.has_room and self._write(node))

    def _write(self, node: Node) -> bool:
        content = node.copy if node.page is None else self._pool.read_page(node.page)
        assert content is not None
        return self._disk.write(node.digest, node.key, content, node.used_ns)
