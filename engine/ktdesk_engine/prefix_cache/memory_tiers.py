"""Pages in memory: the pool, which models compute on, and behind it host memory, which holds copies.

A node has its page in the pool or a copy in host memory, and a parent is never further away than its child. When
the pool needs a page, the longest unused one goes to host memory, and from there out of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ktdesk_engine.prefix_cache.host_memory import HostMemory
from ktdesk_engine.prefix_cache.node import Node
from ktdesk_engine.prefix_cache.pages import PageBytes, PagePool
from ktdesk_engine.prefix_cache.pins import Pins
from ktdesk_engine.prefix_cache.recency import Recency

PINNED_SHARE = 0.5
"""Of the pool's pages, at most."""


class MemoryTiers:
    """Moves pages between the tiers and counts them."""

    def __init__(self, pool: PagePool, ram_bytes: int, on_evict: Callable[[Node], None]) -> None:
        """on_evict is called with a page that is about to leave memory, while its content is still there."""
        self.pool = pool
        self.host = HostMemory(ram_bytes, pool.page_bytes)
        self.pins = Pins(int(PINNED_SHARE * pool.num_free_pages))
        self.idle = Recency()
        """Nodes in the pool that nobody uses."""
        self.num_pool_nodes = 0
        self.num_demoted = 0
        """From the pool to host memory, since the start."""
        self.num_evicted = 0
        """From memory altogether."""
        self._on_evict = on_evict

    @property
    def num_available_pages(self) -> int:
        """Pages of the pool that a sequence can get, now."""
        return self.pool.num_free_pages + len(self.idle)

    def use(self, node: Node) -> None:
        """One more lease holds it: it stays where it is."""
        node.num_users += 1
        self.idle.discard(node)
        self.host.idle.discard(node)

    def unuse(self, path: Iterable[Node]) -> None:
        """One lease less. From the leaf to the root, so that the root counts as used last."""
        for node in path:
            node.num_users -= 1
            if node.num_users == 0:
                (self.idle if node.page is not None else self.host.idle).add(node)

    def make_room(self, num_pages: int) -> bool:
        """Sees to it that so many pages of the pool are free; False, and nothing done, where too many are in use.

        What nobody uses leaves before the pool has to ask others for memory, but for what is pinned.
        """
        if self.num_available_pages < num_pages:
            return False
        while self.pool.num_free_pages < num_pages or (
            self.pool.num_ready_pages < num_pages and self.idle.num_ordinary
        ):
            self._demote_oldest()
        return True

    def leave(self, num_pages: int) -> None:
        """So many pages of the pool become free, of those that nobody uses, but for what is pinned."""
        for _ in range(min(num_pages, self.idle.num_ordinary)):
            self._demote_oldest()

    def load_copy(self, node: Node) -> bool:
        """A used node's copy goes from host memory into the pool. False where the pool is all in use."""
        if self.num_available_pages == 0:
            return False
        # The copy leaves host memory first, so that its place is free for the page that the pool gives up.
        content = self.host.remove(node)
        self.make_room(1)
        self.fill_page(node, content)
        return True

    def fill_page(self, node: Node, content: PageBytes) -> None:
        """Gives a node a free page of the pool."""
        page = self.pool.take_page()
        self.pool.write_page(page, content)
        self._enter_pool(node, page)

    def take_over(self, node: Node, page: int) -> None:
        """A page of a sequence, with what this node holds, becomes the node's, or free where it has one."""
        if node.page is not None:
            self.pool.give_back(page)
            return
        if node.copy is not None:
            self.host.remove(node)
        self._enter_pool(node, page)

    def pin(self, end: Node) -> None:
        """Keeps a prefix before all that is not pinned; older pins go where there are too many."""
        for node in self.pins.pin(end):
            for order in (self.idle, self.host.idle):
                if node in order:
                    order.discard(node)
                    order.add(node)

    def evict_idle(self) -> None:
        """All that nobody uses leaves memory."""
        while (node := self.host.idle.oldest() or self.idle.oldest()) is not None:
            self._evict(node)

    def _demote_oldest(self) -> None:
        """One page of the pool becomes free."""
        node = self.idle.oldest()
        assert node is not None
        if not self.host.can_admit(node):
            self._evict(node)
            return
        if self.host.is_full:
            oldest = self.host.idle.oldest()
            assert oldest is not None
            self._evict(oldest)
        assert node.page is not None
        content = self.pool.read_page(node.page)
        self._leave_pool(node)
        self.host.put(node, content)
        self.num_demoted += 1

    def _evict(self, node: Node) -> None:
        """A leaf leaves memory, and the tree."""
        self._on_evict(node)
        if node.page is not None:
            self._leave_pool(node)
        else:
            self.host.remove(node)
        self.pins.forget(node)
        node.detach()
        self.num_evicted += 1

    def _enter_pool(self, node: Node, page: int) -> None:
        node.page = page
        self.num_pool_nodes += 1

    def _leave_pool(self, node: Node) -> None:
        assert node.page is not None
        self.pool.give_back(node.page)
        node.page = None
        self.num_pool_nodes -= 1
        self.idle.discard(node)

    def check_integrity(self, nodes: Iterable[Node], limit_bytes: int) -> None:
        """nodes: all of the tree, parents before their children."""
        seen = list(nodes)
        for node in seen:
            self._check(node)
        in_pool = [node.page for node in seen if node.page is not None]
        assert len(in_pool) == len(set(in_pool)) == self.num_pool_nodes
        assert sum(node.copy is not None for node in seen) == self.host.num_pages
        assert self.host.num_pages * self.pool.page_bytes == self.host.num_bytes <= limit_bytes
        assert sum(node.num_users == 0 for node in seen) == len(self.idle) + len(self.host.idle)
        self.pins.check_integrity(seen)
        self.idle.check_integrity()
        self.host.idle.check_integrity()

    def _check(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        assert parent.children[node.key] is node
        assert (node.page is None) != (node.copy is None)
        assert node.num_users >= sum(child.num_users for child in node.children.values())
        assert parent.is_root or parent.page is not None or node.page is None
        order = self.idle if node.page is not None else self.host.idle
        assert (node in order) == (node.num_users == 0)
