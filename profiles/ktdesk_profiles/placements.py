"""Placement rules: which tensors lie where, by their GGUF names. The first rule that matches counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ktdesk_profiles.errors import ProfileError
from ktdesk_profiles.named import load_named

FILE = "placements.yaml"
Place = Literal["gpu", "cpu"]


@dataclass(frozen=True)
class PlacementRule:
    match: str
    """A regular expression that is looked for in the name."""
    place: Place
    where: str = ""
    """File and line, for messages. The reader fills it in; a file does not."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.match)
        except re.error as error:
            raise ProfileError(f"match {self.match!r} is no regular expression: {error}") from None


@dataclass(frozen=True)
class Placement:
    name: str
    title: str
    rules: tuple[PlacementRule, ...]

    def __post_init__(self) -> None:
        if not self.rules:
            raise ProfileError(f"{self.name}: there are no rules")

    def place_of(self, tensor: str) -> Place | None:
        """None: no rule matches, and whoever plans decides."""
        return next((rule.place for rule in self.rules if re.search(rule.match, tensor)), None)

    def unused(self, tensors: Sequence[str]) -> list[PlacementRule]:
        """Rules that decide about none of these tensors: a slip, or behind one that takes all."""
        first = {next((r for r in self.rules if re.search(r.match, name)), None) for name in tensors}
        return [rule for rule in self.rules if rule not in first]


def load_placements(user_folder: Path | None = None) -> dict[str, tuple[str, Placement]]:
    """Name -> (where it is from, rules)."""
    return load_named(Placement, FILE, user_folder)
