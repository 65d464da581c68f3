"""The catalogue of models: shapes to plan with before anything is fetched. The file itself is always the truth."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ktdesk_profiles.errors import ProfileError
from ktdesk_profiles.named import load_named

MODELS_FILE = "models.yaml"


@dataclass(frozen=True)
class GroupedQuery:
    """Attention by heads."""

    kind: Literal["grouped-query"]
    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    window: int = 0
    window_period: int = 0
    """Of so many layers the last sees all; 0: all layers do."""
    window_kv_heads: int = 0
    """Of layers with the window; 0: as the others."""
    window_length: int = 0
    """Of their keys and values; 0: as the others."""
    is_gated: bool = False
    """Queries come with a gate of their size."""


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention."""

    kind: Literal["latent"]
    heads: int
    query_rank: int
    """0: queries come from one matrix."""
    latent_length: int
    still_length: int
    turning_length: int
    value_length: int


@dataclass(frozen=True)
class DeltaNet:
    """Linear attention with a state (gated delta net), in the layers that have no attention."""

    kind: Literal["delta-net"]
    key_heads: int
    value_heads: int
    length: int
    conv_kernel: int


@dataclass(frozen=True)
class Mamba2:
    """In the layers that have no attention."""

    kind: Literal["mamba2"]
    inner: int
    state: int
    groups: int
    heads: int
    conv_kernel: int


@dataclass(frozen=True)
class Experts:
    count: int
    used: int
    width: int
    shared_width: int = 0
    """Of those that are always on, as one network."""
    matrices: int = 3
    """2: without a gate."""


@dataclass(frozen=True)
class Repository:
    id: str
    seen: bool
    """Whether it was seen to exist; else it is named after a rule."""


@dataclass(frozen=True)
class ModelProfile:
    name: str
    title: str
    source: Literal["read", "secondary", "recalled"]
    """How the numbers are known: from a copy of the model's configuration, from notes, from memory."""
    architecture: str
    """As GGUF names it."""
    layers: int
    hidden: int
    vocabulary: int
    context: int
    attention: GroupedQuery | Latent
    experts: Experts
    total_billions: float
    """As published, rounded by its makers."""
    repositories: tuple[Repository, ...]
    recurrent: DeltaNet | Mamba2 | None = None
    attention_layers: int = 0
    """How many layers are attention; 0: all. The others are recurrent, or networks alone."""
    moe_layers: int = 0
    """How many layers have experts; 0: all but the dense ones."""
    dense_layers: int = 0
    """First layers without experts."""
    dense_width: int = 0
    """Of the networks of layers without experts."""
    beside_width: int = 0
    """Of a dense network beside the experts of every layer."""
    is_tied: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if self.dense_layers >= self.layers or self.attention_layers > self.layers or self.moe_layers > self.layers:
            raise ProfileError(f"{self.name}: there are only {self.layers} layers")
        if self.dense_layers and not self.dense_width:
            raise ProfileError(f"{self.name}: dense_layers without dense_width")
        if self.experts.used > self.experts.count:
            raise ProfileError(f"{self.name}: {self.experts.used} of {self.experts.count} experts cannot be used")


def load_models(user_folder: Path | None = None) -> dict[str, ModelProfile]:
    """By name, the shipped ones and those of the user's files *.yaml, which override shipped ones of the same name."""
    return {name: profile for name, (_, profile) in load_model_profiles(user_folder).items()}


def load_model_profiles(user_folder: Path | None = None) -> dict[str, tuple[str, ModelProfile]]:
    """Name -> (where it is from, profile)."""
    return load_named(ModelProfile, MODELS_FILE, user_folder)


def nearest(name: str, models: dict[str, ModelProfile]) -> list[str]:
    """Up to three names that are almost this one, or contain it."""
    low = name.lower()
    containing = [known for known in models if low in known]
    return (containing or difflib.get_close_matches(low, models, cutoff=0.5))[:3]
