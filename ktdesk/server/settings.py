"""How a server is reached, whom it serves, and what a request may be at most."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ktdesk.errors import UsageError

DEFAULT_PORT = 8631
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0: any that is free."""
    api_key: str | None = None
    allow_public: bool = False
    """Listen beyond this machine without a key."""
    allowed_hosts: tuple[str, ...] = ()
    """More names under which the server is reached, as in the Host header."""
    cors_origins: tuple[str, ...] = ()
    """Web pages that may use it, as `https://example.org`."""
    max_body_bytes: int = 32 << 20
    max_prompt_tokens: int | None = None
    """Beside the context."""
    max_output_tokens: int | None = None
    """For requests that ask for more, or do not say."""
    deadline_seconds: float | None = None
    """For requests that allow more, or do not say. None: as long as it takes."""
    pins_beginnings: bool = True
    """System prompts and tools stay cached before all else."""
    max_models: int = 1
    """In memory at the same time."""
    turn_wait_seconds: float = 60.0
    """For a request whose model must wait until others are done; after that it is refused."""
    falls_back: bool = True
    """A model whose accelerator is lost is loaded anew without one."""
    keep_alive_seconds: float | None = None
    """It ends when nobody asked for so long, and of several models those leave that nobody asked. None: they stay."""
    receive_seconds: float = 60.0
    """For a request to come as a whole, headers and body."""
    finish_seconds: float = 10.0
    """For answers that run when the server is told to stop."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port must be in 0..65535: {self.port}")
        if self.max_models < 1:
            raise UsageError(f"--models-loaded must be at least 1: {self.max_models}")
        if self.api_key is not None and not self.api_key.strip():
            raise UsageError("the API key is empty: give one, or leave --api-key out")
        if not self.is_loopback and self.api_key is None and not self.allow_public:
            raise UsageError(
                f"--host {self.host} can be reached from other machines: give --api-key, "
                "or --allow-public to let everyone in"
            )
        for name, value in (
            ("--max-body-bytes", self.max_body_bytes),
            ("--finish-seconds", self.finish_seconds),
            ("--turn-wait", self.turn_wait_seconds),
        ):
            if value < 0:
                raise UsageError(f"{name} must not be negative: {value}")
        if self.keep_alive_seconds is not None and self.keep_alive_seconds < 0:
            raise UsageError(f"--keep-alive must not be negative: {self.keep_alive_seconds:g}")
        if self.deadline_seconds is not None and self.deadline_seconds <= 0:
            raise UsageError(f"--deadline must be above 0: {self.deadline_seconds:g}")

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
