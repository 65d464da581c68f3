"""One fact about the machine: what is known, from where, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

Confidence = Literal["measured", "reported", "derived", "looked up", "given", "unknown"]
CONFIDENCES: tuple[Confidence, ...] = ("measured", "reported", "derived", "looked up", "given", "unknown")


@dataclass(frozen=True)
class Fact(Generic[T]):
    value: T | None
    """None: unknown."""
    source: str
    """A file or a call. Of what is unknown: why."""
    confidence: Confidence
    """measured: by us, now. reported: the system says so. derived: follows from what it says. looked up: from a table
    of such hardware. given: by the user."""

    @property
    def is_known(self) -> bool:
        return self.value is not None


def measured(value: T, source: str) -> Fact[T]:
    return Fact(value, source, "measured")


def reported(value: T, source: str) -> Fact[T]:
    return Fact(value, source, "reported")


def derived(value: T, source: str) -> Fact[T]:
    return Fact(value, source, "derived")


def unknown(why: str) -> Fact[T]:
    return Fact(None, why, "unknown")


def reported_or_unknown(value: T | None, source: str, why: str) -> Fact[T]:
    return unknown(why) if value is None else reported(value, source)
