"""What one sequence holds of the tree while it runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ktdesk_engine.prefix_cache.node import Node


@dataclass
class Lease:
    """Pages at the beginning of a sequence that stay in the pool until it gives them back."""

    root: Node
    nodes: list[Node] = field(default_factory=list)
    """In the pool, from the root on."""
    waiting: deque[Node] = field(default_factory=deque)
    """The next ones, not loaded yet; held as well."""
    disk_keys: deque[bytes] = field(default_factory=deque)
    """Tokens of the pages after those, which the disk may have."""

    @property
    def pages(self) -> list[int]:
        """Of the pool."""
        return [page for node in self.nodes if (page := node.page) is not None]

    @property
    def is_loading(self) -> bool:
        return bool(self.waiting or self.disk_keys)

    @property
    def last(self) -> Node:
        return self.nodes[-1] if self.nodes else self.root
