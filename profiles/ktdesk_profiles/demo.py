"""The profile of the demo model: which package and file it is made from, and how."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

import yaml

from ktdesk_profiles.errors import ProfileError

PROFILE_FILE = "demo.yaml"


@dataclass(frozen=True)
class DemoProfile:
    name: str
    """Of the file that is made, without its ending."""
    title: str
    """As people read it."""
    package: str
    """The Python package that carries the dense model; never imported."""
    version: str
    file: str
    """Where the dense model lies in the package."""
    file_bytes: int
    sha256: str
    """Of the dense model."""
    licence: str
    """Of the dense model, as SPDX spells it, in small letters."""
    num_experts: int
    num_used: int
    """Experts a token goes to."""
    seed: int
    """Of the random router."""
    made_bytes: int
    """Of the file that is made, rounded up: to know beforehand whether the disk has room."""


def load_demo_profile() -> DemoProfile:
    """The profile that ships."""
    text = resources.files("ktdesk_profiles").joinpath(PROFILE_FILE).read_text(encoding="utf-8")
    return parse_demo_profile(text, PROFILE_FILE)


def parse_demo_profile(text: str, origin: str) -> DemoProfile:
    """origin: the file, for messages."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProfileError(f"{origin}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ProfileError(f"{origin}: must hold keys and values, not {type(values).__name__}")
    expected = {field.name: {"str": str, "int": int}[str(field.type)] for field in fields(DemoProfile)}
    for key, value in values.items():
        if key not in expected:
            raise ProfileError(f"{origin}: unknown key {key!r}; known are {', '.join(expected)}")
        _check_type(value, expected[key], f"{origin}: {key}")
    missing = [key for key in expected if key not in values]
    if missing:
        raise ProfileError(f"{origin}: {', '.join(missing)} missing")
    return DemoProfile(**values)


def _check_type(value: Any, expected: type, what: str) -> None:
    if type(value) is not expected:
        raise ProfileError(f"{what} must be of type {expected.__name__}: {value!r}")
