"""Settings that make another network of a model, and how they are named where an answer is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOSSY = ("defer", "experts_used")
HEADER = "x-ktdesk-changed"
"""Of a response: what `as_words` says; left out where nothing is changed."""


def changed(config: Mapping[str, Any]) -> dict[str, int]:
    """Those of the engine's settings that change what it computes, beyond rounding. Empty: none."""
    return {name: config[name] for name in LOSSY if config.get(name)}


def as_words(changes: Mapping[str, int]) -> str:
    """Such as `defer=2, experts_used=4`."""
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def banner(config: Mapping[str, Any]) -> str:
    """What a greeting adds; empty where nothing is changed."""
    changes = changed(config)
    return f" {as_words(changes)}: another network than was trained (`ktdesk eval` measures it)." if changes else ""
