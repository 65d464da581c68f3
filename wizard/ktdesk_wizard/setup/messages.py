"""What the process that tries a model tells the setup: a JSON object a line, on its standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ktdesk_engine.config import AcceleratorKind, CacheType, Compute, EngineConfig
from ktdesk_engine.placement_rules import Rule

Part = Literal["rehearse", "load", "smoke", "prove"]


@dataclass(frozen=True)
class Task:
    """What the process is to do, on its command line."""

    path: str
    data_folder: str
    context: int
    cache_type: CacheType
    compute: Compute
    num_threads: int | None
    is_rehearsal: bool
    """Without weights: the file may have holes for them."""
    accelerator: AcceleratorKind | None = None
    accelerator_bytes: int | None = None
    placement_rules: str = "[]"
    """JSON, as `Wishes` has them."""

    @property
    def config(self) -> EngineConfig:
        """As the command of the plan has it."""
        return EngineConfig(
            compute=self.compute,
            context=self.context,
            cache_type=self.cache_type,
            num_threads=self.num_threads,
            accelerator=self.accelerator,
            accelerator_bytes=self.accelerator_bytes,
            placement_rules=tuple(Rule(**rule) for rule in json.loads(self.placement_rules)),
        )

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Task:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Message:
    part: Part
    kind: Literal["advance", "done", "failed"]
    facts: Mapping[str, Any]

    def as_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Message | None:
        """None for what else is printed."""
        try:
            values = json.loads(line)
            return cls(values["part"], values["kind"], values["facts"])
        except (ValueError, TypeError, KeyError):
            return None
