"""What the process that tries a model tells the setup: a JSON object a line, on its standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ktdesk_engine.config import CacheType, Compute

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
