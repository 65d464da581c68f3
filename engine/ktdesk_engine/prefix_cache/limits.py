"""How much the prefix cache may keep, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ktdesk_engine.errors import ConfigError


@dataclass(frozen=True)
class CacheLimits:
    """Beside the pages of the pool, which are there anyway. The limits are hard."""

    ram_bytes: int = 0
    """Main memory for pages that leave the pool; 0: none."""
    disk_bytes: int = 0
    """0: none, and nothing is read from disk either."""
    disk_folder: Path | None = None

    def __post_init__(self) -> None:
        for name in ("ram_bytes", "disk_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0: {getattr(self, name)}")
        if self.disk_bytes and self.disk_folder is None:
            raise ConfigError(f"disk_bytes is {self.disk_bytes}, but no disk_folder says where")
