"""Prefixes that stay before all others: system prompts."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

from ktdesk_engine.prefix_cache.node import Node


class Pins:
    """Each pin is the last node of a pinned prefix, the longest unused first."""

    def __init__(self, max_pages: int) -> None:
        self._max_pages = max_pages
        self._ends: OrderedDict[Node, None] = OrderedDict()
        self.num_pages = 0
        """Distinct ones."""

    def pin(self, end: Node) -> list[Node]:
        """Pins a prefix; returns the nodes of older pins that had to make room, leaves first."""
        if end in self._ends:
            self._ends.move_to_end(end)
            return []
        self._ends[end] = None
        for node in end.path_up():
            self.num_pages += not node.is_pinned
            node.num_pins += 1
        lifted: list[Node] = []
        while self.num_pages > self._max_pages:
            lifted += self._lift(next(iter(self._ends)))
        return lifted

    def forget(self, node: Node) -> None:
        """A page leaves the cache; what was pinned up to it is pinned up to its parent."""
        if node not in self._ends:
            return
        del self._ends[node]
        node.num_pins -= 1
        self.num_pages -= 1
        assert node.num_pins == 0
        assert node.parent is not None
        if node.parent in self._ends:
            self._unpin(node.parent)
        elif not node.parent.is_root:
            self._ends[node.parent] = None

    def _lift(self, end: Node) -> list[Node]:
        del self._ends[end]
        return self._unpin(end)

    def _unpin(self, end: Node) -> list[Node]:
        """The nodes that no pin is left on."""
        for node in end.path_up():
            node.num_pins -= 1
        free = [node for node in end.path_up() if not node.is_pinned]
        self.num_pages -= len(free)
        return free

    def check_integrity(self, nodes: Iterable[Node]) -> None:
        """nodes: all of the tree."""
        counts = Counter(node for end in self._ends for node in end.path_up())
        assert {node: node.num_pins for node in nodes if node.is_pinned} == counts
        assert self.num_pages == len(counts) <= self._max_pages
