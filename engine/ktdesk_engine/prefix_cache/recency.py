"""Who was used last, among nodes that nobody uses now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ktdesk_engine.prefix_cache.node import Node


class Recency:
    """Nodes by the end of their last use, the longest unused first; pinned ones come after all others.

    A path is added from its leaf to its root. So a node is always after its descendants, and the first one is a
    leaf: plain order of use gives "least recently used leaves first".
    """

    def __init__(self) -> None:
        self._ordinary: OrderedDict[Node, None] = OrderedDict()
        self._pinned: OrderedDict[Node, None] = OrderedDict()

    def add(self, node: Node) -> None:
        """As the one used last."""
        (self._pinned if node.is_pinned else self._ordinary)[node] = None

    def discard(self, node: Node) -> None:
        self._ordinary.pop(node, None)
        self._pinned.pop(node, None)

    def oldest(self) -> Node | None:
        return next(iter(self), None)

    @property
    def num_ordinary(self) -> int:
        """Not pinned."""
        return len(self._ordinary)

    def __contains__(self, node: Node) -> bool:
        return node in self._ordinary or node in self._pinned

    def __iter__(self) -> Iterator[Node]:
        yield from self._ordinary
        yield from self._pinned

    def __len__(self) -> int:
        return len(self._ordinary) + len(self._pinned)

    def check_integrity(self) -> None:
        for nodes in (self._ordinary, self._pinned):
            places = {node: place for place, node in enumerate(nodes)}
            for node, place in places.items():
                assert node.is_pinned == (nodes is self._pinned)
                assert node.parent is not None
                assert places.get(node.parent, place + 1) > place
