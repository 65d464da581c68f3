"""`--placement`: rules by the name that a profile gives them, or a YAML file that lists them."""

from __future__ import annotations

from pathlib import Path

from ktdesk.errors import UsageError
from ktdesk.profiles import placement_named
from ktdesk.settings import Settings
from ktdesk_profiles.placements import PlacementRule
from ktdesk_profiles.reading import read_profiles

SUFFIXES = (".yaml", ".yml")


def rules_of(name: str, settings: Settings) -> tuple[PlacementRule, ...]:
    """UsageError or ProfileError where there are none, each with what to do."""
    return _of_file(Path(name)) if name.endswith(SUFFIXES) else placement_named(settings, name).rules


def _of_file(path: Path) -> tuple[PlacementRule, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UsageError(f"--placement {path}: {reason}") from None
    rules = read_profiles(text, PlacementRule, str(path))
    if not rules:
        raise UsageError(f"--placement {path}: there are no rules in it")
    return rules
