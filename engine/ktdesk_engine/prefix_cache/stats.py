"""Numbers of the prefix cache, for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CachedPages:
    """How many pages lie where."""

    pool: int = 0
    ram: int = 0
    disk: int = 0

    @property
    def total(self) -> int:
        return self.pool + self.ram + self.disk

    def plus(self, pool: int = 0, ram: int = 0, disk: int = 0) -> CachedPages:
        return CachedPages(self.pool + pool, self.ram + ram, self.disk + disk)


@dataclass(frozen=True)
class CacheStats:
    """`num_hit_pages`, `num_missed_pages`, and what was demoted, evicted, written or rejected count since the start."""

    page_bytes: int
    num_free_pages: int
    """Of the pool."""
    num_shared_pages: int
    """Of the pool, in the tree; those in use are among them."""
    num_idle_pages: int
    """Of these, the ones that nobody uses."""
    num_pinned_pages: int
    ram_bytes: int
    ram_limit_bytes: int
    num_hit_pages: CachedPages
    num_missed_pages: int
    num_demoted_pages: int
    """From the pool to host memory."""
    num_evicted_pages: int
    """From memory altogether."""
    disk: DiskStats | None


@dataclass(frozen=True)
class DiskStats:
    num_bytes: int
    limit_bytes: int
    num_written: int
    num_failed: int
    """The disk was full, or refused."""
    num_lost: int
    """Left memory before the disk could take them."""
    num_rejected: int
    """Torn, foreign or stale: deleted instead of served."""
