"""One measured run of a model: what it took of memory, how fast it was, and what the machine could do meanwhile."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from ktdesk_engine.config import CacheType
from ktdesk_engine.kernels import _kernels
from ktdesk_wizard.probe.measurement import BUSY_SHARE

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(frozen=True)
class SpeedSample:
    """One phase at one depth; upper quartiles of the samples."""

    phase: Phase
    num_tokens: int
    """Of the prompt, or decoded one after the other."""
    depth: int
    """Tokens in the cache before."""
    tok_s: float
    read_bytes_s: float
    """Of the memory, in the same seconds."""
    peak_ops_s: float
    """Of bytes on vectors, in the same seconds."""
    tile_ops_s: float | None
    """Of bytes on tiles, where there are any."""
    planned_tok_s: float | None
    """What a plan without corrections says for that bandwidth and that peak. None: nothing."""

    @property
    def factor(self) -> float | None:
        """Measured by planned; above 1: faster."""
        return None if not self.planned_tok_s else self.tok_s / self.planned_tok_s


@dataclass(frozen=True)
class MemorySample:
    peak_bytes: int
    """Of the process, from its start until the answer."""
    planned_bytes: int
    """Without corrections, for as many tokens as were in the cache."""

    @property
    def missing_bytes(self) -> int:
        return self.peak_bytes - self.planned_bytes


@dataclass(frozen=True)
class MeasuredRun:
    date: str
    """In UTC, to the second."""
    machine: str
    """As `probe.measurement.machine_key` has it."""
    build: str
    """Of the engine."""
    formulas: int
    """The version of those that planned."""
    model: str
    """Its fingerprint."""
    title: str
    compute: str
    isa: str
    num_threads: int
    cache_type: CacheType
    speeds: tuple[SpeedSample, ...]
    memory: MemorySample | None
    shape: str = ""
    """Of the model, without its quantization."""
    accelerator: str = ""
    """Where not the CPU alone computed."""
    busy_cores: float = 0.0
    """That others used meanwhile."""

    @property
    def was_busy(self) -> bool:
        """What others interrupt is longer or shorter than a turn of theirs, and a look at a ceiling is another length
        than a prompt or a token: what was planned for the ceilings, and what was measured, go apart."""
        return self.busy_cores > BUSY_SHARE * self.num_threads

    @property
    def ceilings(self) -> tuple[float, float] | None:
        """The highest read bandwidth and peak beside any of its samples."""
        if not self.speeds:
            return None
        return max(speed.read_bytes_s for speed in self.speeds), max(speed.peak_ops_s for speed in self.speeds)


@lru_cache(maxsize=1)
def engine_build() -> str:
    """The version, and a hash of the extension: kernels that were compiled anew are another engine."""
    extension = Path(str(_kernels.__file__))
    digest = hashlib.sha256(extension.read_bytes()).hexdigest()
    return f"{metadata.version('ktdesk')}-{digest[:12]}"
