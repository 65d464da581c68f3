"""Pages that left the pool, in main memory, below a hard limit of bytes."""

from __future__ import annotations

from ktdesk_engine.prefix_cache.node import Node
from ktdesk_engine.prefix_cache.pages import PageBytes
from ktdesk_engine.prefix_cache.recency import Recency


class HostMemory:
    """Holds copies; knows who is next to leave, but not how one leaves the tree."""

    def __init__(self, limit_bytes: int, page_bytes: int) -> None:
        self._max_pages = limit_bytes // page_bytes
        self._page_bytes = page_bytes
        self.num_pages = 0
        self.idle = Recency()
        """Of its nodes, those that nobody waits for."""

    @property
    def num_bytes(self) -> int:
        return self.num_pages * self._page_bytes

    @property
    def is_full(self) -> bool:
        return self.num_pages >= self._max_pages

    def can_admit(self, node: Node) -> bool:
        """Whether there is room, or a page in it that should leave before this one does."""
        if not self.is_full:
            return True
        oldest = self.idle.oldest()
        return oldest is not None and node.is_pinned >= oldest.is_pinned

    def put(self, node: Node, content: PageBytes) -> None:
        assert not self.is_full
        node.copy = content
        self.num_pages += 1
        self.idle.add(node)

    def remove(self, node: Node) -> PageBytes:
        """The node's copy, which is no longer counted."""
        content = node.copy
        assert content is not None
        node.copy = None
        self.num_pages -= 1
        self.idle.discard(node)
        return content
