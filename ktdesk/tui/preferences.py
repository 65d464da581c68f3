"""What the user chose: `app.yaml` in the data folder. Written by the app, and by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from ktdesk.errors import AppError

FILE: Final = "app.yaml"
RANGES = {"renders_per_second": (1.0, 30.0)}


class PreferencesError(AppError):
    """The file of preferences holds what makes no sense."""


@dataclass(frozen=True)
class Preferences:
    theme: str | None = None
    """None: by what the terminal can show."""
    keys: dict[str, str] = field(default_factory=dict)
    """Name of a key to what it is bound to instead."""
    load_last_model: bool = True
    """Load it as the app starts."""
    last_model: str | None = None
    """Its path."""
    last_options: dict[str, Any] = field(default_factory=dict)
    """Of the engine, with which it was started: `context: 4096`."""
    show_reasoning: bool = False
    """Unfold reasoning while it comes."""
    renders_per_second: float = 4.0
    """Of a streaming answer, at most."""
    presets: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of sampling, by name."""

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise PreferencesError(f"{name} must be from {low:g} to {high:g}, not {getattr(self, name):g}")


class PreferencesFile:
    """Reads and writes them. A file that makes no sense is left alone, and nothing is written over it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.error: PreferencesError | OSError | None = None
        """Why the file was not read."""
        self.now = self._read()

    def change(self, **values: Any) -> Preferences:
        """Sets some and writes all. OSError where that cannot be done; they count for this session all the same."""
        self.now = replace(self.now, **values)
        if self.error is None:
            self._write()
        return self.now

    def _read(self) -> Preferences:
        try:
            if not self.path.exists():
                return Preferences()
            return parse(self.path.read_text(encoding="utf-8"), str(self.path))
        except (PreferencesError, OSError, UnicodeDecodeError) as error:
            self.error = (
                error if not isinstance(error, UnicodeDecodeError) else PreferencesError(f"{self.path}: {error}")
            )
            return Preferences()

    def _write(self) -> None:
        import yaml

        default = asdict(Preferences())
        facts = {name: value for name, value in asdict(self.now).items() if value != default[name]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}")
        partial.write_text(yaml.safe_dump(facts, allow_unicode=True) if facts else "", encoding="utf-8")
        partial.replace(self.path)


def parse(text: str, where: str) -> Preferences:
    import yaml

    try:
        facts = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise PreferencesError(f"{where} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(facts, dict):
        raise PreferencesError(f"{where} must hold names and values, not {type(facts).__name__}")
    return Preferences(**{str(name): _checked(str(name), value, where) for name, value in facts.items()})


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "theme": ((str,), "the name of a theme"),
    "keys": ((dict,), "names of keys and what they are bound to"),
    "load_last_model": ((bool,), "true or false"),
    "last_model": ((str,), "a path"),
    "last_options": ((dict,), "options of the engine and their values"),
    "show_reasoning": ((bool,), "true or false"),
    "renders_per_second": ((int, float), "a number"),
    "presets": ((dict,), "names of presets and their values"),
}


def _checked(name: str, value: Any, where: str) -> Any:
    if name not in _KINDS:
        known = ", ".join(item.name for item in fields(Preferences))
        raise PreferencesError(f"{where}: there is no setting {name!r}; there are {known}")
    kinds, expected = _KINDS[name]
    if not isinstance(value, kinds) or (bool not in kinds and isinstance(value, bool)):
        raise PreferencesError(f"{where}: {name} must be {expected}, not {value!r}")
    if not isinstance(value, dict):
        return value
    check = {"keys": _text, "last_options": _plain}.get(name, _numbers)
    return {str(key): check(f"{name}.{key}", item, where) for key, item in value.items()}


def _text(name: str, value: Any, where: str) -> Any:
    if not isinstance(value, str) or not value:
        raise PreferencesError(f"{where}: {name} must be a key such as ctrl+n, not {value!r}")
    return value


def _plain(name: str, value: Any, where: str) -> Any:
    if not isinstance(value, (str, int, float)):
        raise PreferencesError(f"{where}: {name} must be a word or a number, not {value!r}")
    return value


def _numbers(name: str, value: Any, where: str) -> Any:
    if not isinstance(value, dict) or not all(isinstance(number, (int, float)) for number in value.values()):
        raise PreferencesError(f"{where}: {name} must be names and numbers, not {value!r}")
    return {str(key): number for key, number in value.items()}
