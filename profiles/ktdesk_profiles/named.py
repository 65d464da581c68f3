"""Profiles that go by a name, in lists: those that ship, and the user's files, which override shipped ones."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Protocol, TypeVar

from ktdesk_profiles.errors import ProfileError
from ktdesk_profiles.reading import read_profiles


class Named(Protocol):
    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Named)


def load_named(kind: type[P], shipped_file: str, user_folder: Path | None = None) -> dict[str, tuple[str, P]]:
    """Name -> (where it is from, profile). Of the user's *.yaml the last of one name counts."""
    shipped = resources.files("ktdesk_profiles").joinpath(shipped_file).read_text(encoding="utf-8")
    found = _by_name(read_profiles(shipped, kind, shipped_file), shipped_file)
    for path in sorted(user_folder.glob("*.yaml")) if user_folder is not None else ():
        found |= _by_name(read_profiles(path.read_text(encoding="utf-8"), kind, str(path)), str(path))
    return found


def _by_name(profiles: tuple[P, ...], origin: str) -> dict[str, tuple[str, P]]:
    found: dict[str, tuple[str, P]] = {}
    for profile in profiles:
        if profile.name in found:
            raise ProfileError(f"{origin}: two entries are called {profile.name!r}")
        found[profile.name] = origin, profile
    return found
