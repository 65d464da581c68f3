"""Presets: what to ask of a plan and of an answer, by one name. What a preset does not say stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ktdesk_profiles.errors import ProfileError
from ktdesk_profiles.named import load_named

FILE = "presets.yaml"


@dataclass(frozen=True)
class PresetPlan:
    """As the options of `ktdesk plan`."""

    context: int | None = None
    cache_type: Literal["float32", "f16", "bf16", "q8_0"] | None = None
    sequences: int | None = None
    threads: int | None = None
    compute: Literal["auto", "float32"] | None = None
    max_memory: float | None = None
    """GiB."""
    device: Literal["auto", "cpu", "gpu"] | None = None

    def __post_init__(self) -> None:
        for name in ("context", "sequences", "threads", "max_memory"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ProfileError(f"{name} must be more than 0: {value}")


@dataclass(frozen=True)
class PresetSampling:
    """As the options of `ktdesk run`."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    def __post_init__(self) -> None:
        for name, low, high in (("temperature", 0, 100), ("top_k", 0, 10**9), ("top_p", 0, 1), ("min_p", 0, 1)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ProfileError(f"{name} must be in {low}..{high}: {value}")


@dataclass(frozen=True)
class Preset:
    name: str
    title: str
    plan: PresetPlan = field(default_factory=PresetPlan)
    sampling: PresetSampling = field(default_factory=PresetSampling)

    def __post_init__(self) -> None:
        if not said(self.plan) and not said(self.sampling):
            raise ProfileError(f"{self.name}: it says nothing")


def said(part: PresetPlan | PresetSampling) -> dict[str, Any]:
    """What it does say."""
    values = {item.name: getattr(part, item.name) for item in fields(part)}
    return {name: value for name, value in values.items() if value is not None}


def load_presets(user_folder: Path | None = None) -> dict[str, tuple[str, Preset]]:
    """Name -> (where it is from, preset)."""
    return load_named(Preset, FILE, user_folder)
