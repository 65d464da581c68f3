"""One page in the tree."""

from __future__ import annotations

from collections.abc import Iterator

from ktdesk_engine.prefix_cache.pages import PageBytes, chained_digest


class Node:
    """The page after all pages from the root to its parent. It lies in the pool or in host memory, never in both."""

    __slots__ = ("children", "copy", "digest", "key", "num_pins", "num_users", "page", "parent", "used_ns")

    def __init__(self, parent: Node | None, key: bytes, digest: bytes) -> None:
        self.parent = parent
        self.key = key
        """The page's tokens."""
        self.digest = digest
        """Names the page by its tokens and all before them."""
        self.children: dict[bytes, Node] = {}
        self.page: int | None = None
        """In the pool."""
        self.copy: PageBytes | None = None
        """In host memory."""
        self.num_users = 0
        """Leases that hold it: it stays in the pool until they are gone."""
        self.num_pins = 0
        """Pinned prefixes that go through it."""
        self.used_ns = 0
        """When a sequence that used it last was done, or later for those near the root: the age of its file."""

    @classmethod
    def root(cls, fingerprint: bytes) -> Node:
        """Holds no page; every prefix begins here."""
        return cls(None, b"", fingerprint)

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def is_pinned(self) -> bool:
        return self.num_pins > 0

    def add_child(self, key: bytes) -> Node:
        assert key not in self.children
        child = Node(self, key, chained_digest(self.digest, key))
        self.children[key] = child
        return child

    def detach(self) -> None:
        """Takes a leaf out of the tree."""
        assert self.parent is not None
        assert not self.children
        del self.parent.children[self.key]

    def path_up(self) -> Iterator[Node]:
        """Itself and its ancestors, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def descendants(self) -> Iterator[Node]:
        """Parents before their children."""
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()
