"""What the scheduler may do."""

from __future__ import annotations

from dataclasses import dataclass

from ktdesk_engine.errors import ConfigError

MOST_RUNNING = 1024
"""Each has its place in the cache and its share of every step."""


@dataclass(frozen=True)
class SchedulerLimits:
    """How many at once, and how long anybody waits."""

    max_running: int = 4
    """Requests that are computed at the same time."""
    max_waiting: int = 64
    """Requests in the queue; more are refused."""
    max_stall_ms: float = 500.0
    """Between two tokens of an answer, while prompts of others are computed."""
    max_wait_seconds: float | None = None
    """Until the first token; requests that would wait longer are refused. None: none is refused for that."""

    def __post_init__(self) -> None:
        for name, lowest in (("max_running", 1), ("max_waiting", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}: {getattr(self, name)}")
        if self.max_running > MOST_RUNNING:
            raise ConfigError(
                f"max_running must be at most {MOST_RUNNING}: {self.max_running}; each takes its part of the cache, "
                "and others wait in the queue"
            )
        if self.max_stall_ms <= 0:
            raise ConfigError(f"max_stall_ms must be above 0: {self.max_stall_ms}")
        if self.max_wait_seconds is not None and self.max_wait_seconds <= 0:
            raise ConfigError(f"max_wait_seconds must be above 0: {self.max_wait_seconds}")

    @property
    def max_stall_seconds(self) -> float:
        return self.max_stall_ms / 1000
