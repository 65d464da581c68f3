"""What the user asks of a plan, and what this build of the engine can do. None: the plan decides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from ktdesk_engine.config import COMPUTES, CacheType, Compute
from ktdesk_engine.models.registry import families
from ktdesk_engine.placement_rules import Rule
from ktdesk_wizard.errors import WishError

Devices = Literal["auto", "cpu", "gpu"]
DEVICES: tuple[Devices, ...] = ("auto", "cpu", "gpu")


@dataclass(frozen=True)
class Wishes:
    context: int | None = None
    cache_type: CacheType | None = None
    num_sequences: int = 1
    num_threads: int | None = None
    compute: Compute = "auto"
    max_memory_bytes: int | None = None
    """Of main memory, for all of ktdesk."""
    max_gpu_bytes: int | None = None
    """Of each card."""
    devices: Devices = "auto"
    placement: str | None = None
    """What the user calls his rules for experts on a card: a name, or a file."""
    placement_rules: str = "[]"
    """The rules themselves, as JSON: wishes are written down."""

    def __post_init__(self) -> None:
        for name in ("context", "num_threads", "max_memory_bytes", "max_gpu_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WishError(f"{name} must be at least 1: {value}")
        if self.num_sequences < 1:
            raise WishError(f"num_sequences must be at least 1: {self.num_sequences}")
        if self.compute not in COMPUTES:
            raise WishError(f"compute must be one of {', '.join(COMPUTES)}: {self.compute!r}")
        if self.devices not in DEVICES:
            raise WishError(f"devices must be one of {', '.join(DEVICES)}: {self.devices!r}")
        if self.devices == "cpu" and self.max_gpu_bytes is not None:
            raise WishError("max_gpu_bytes is for a card, but the processor alone is asked for: leave one of them out")
        if self.devices == "cpu" and self.placement is not None:
            raise WishError(
                "placement_rules are for a card, but the processor alone is asked for: leave one of them out"
            )

    def accelerator_options(self, *, uses_card: bool) -> dict[str, Any]:
        """Of commands that run what was planned, by name."""
        if not uses_card:
            return {}
        gib = None if self.max_gpu_bytes is None else self.max_gpu_bytes / 2**30
        rules = None if self.placement is None else self.placement_rules
        return {"accelerator": "cuda", "accelerator_memory": gib, "placement": rules}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """ConfigError where one makes no sense."""
        return tuple(Rule(**rule) for rule in json.loads(self.placement_rules))

    @property
    def asks_for_cards(self) -> bool:
        return self.devices == "gpu" or self.max_gpu_bytes is not None

    def compute_on(self, isa: str) -> Compute:
        """What the engine makes of it (`ktdesk_engine.compute.decide_compute`)."""
        if isa != "amx":
            return "float32" if self.compute == "float32" else "int8"
        return "mixed" if self.compute == "auto" else self.compute


@dataclass(frozen=True)
class EngineAbilities:
    architectures: frozenset[str]
    has_gpu: bool
    """A backend that computes on cards."""
    cuts_windows: bool = False
    """Layers with a sliding window keep only the window."""


def engine_abilities() -> EngineAbilities:
    """Of this build. Its kernels for cards have not run on one: a plan uses cards only where that is asked for."""
    return EngineAbilities(frozenset(families()), has_gpu=False)
