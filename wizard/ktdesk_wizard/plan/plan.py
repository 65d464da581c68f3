"""A plan: what goes where, whether it fits, how fast it should be, and what was decided against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ktdesk_engine.config import CacheType, Compute

VerdictKind = Literal["fits", "fits if you free memory", "does not fit", "unknown"]
MEMORY = "memory"


@dataclass(frozen=True)
class LedgerEntry:
    place: str
    """memory, or gpu 0, gpu 1, ..."""
    what: str
    num_bytes: int
    formula: str
    """Where the number is from."""
    is_transient: bool = False
    """Only while the model is loaded."""


@dataclass(frozen=True)
class PlaceTotal:
    """One device."""

    place: str
    num_bytes: int
    """At the most, at any time."""
    free_bytes: int | None
    """That may be taken now. None: unknown."""
    capacity_bytes: int | None
    """If nothing else ran."""


@dataclass(frozen=True)
class NodeShare:
    """A NUMA node's part of the work; its threads' slices of all weights lie in its memory."""

    node: int
    num_threads: int
    weight_bytes: int
    free_bytes: int | None


@dataclass(frozen=True)
class Verdict:
    kind: VerdictKind
    message: str
    missing_bytes: int
    change: str | None
    """The smallest that would make it fit."""


@dataclass(frozen=True)
class Lane:
    """One part of the time of a token."""

    name: str
    amount: str
    """What has to be moved or computed, and how fast."""
    min_seconds: float
    max_seconds: float

    @property
    def likely_seconds(self) -> float:
        """Between both: errors are factors, so the geometric mean."""
        return (self.min_seconds * self.max_seconds) ** 0.5


@dataclass(frozen=True)
class Prediction:
    what: str
    tok_s: float | None
    """The likeliest. None: unknown, and `basis` says why."""
    min_tok_s: float | None
    max_tok_s: float | None
    limiting_lane: str | None
    lanes: tuple[Lane, ...]
    basis: str
    """measured or looked up."""
    correction: str | None = None
    """What earlier runs changed about it."""


@dataclass(frozen=True)
class Rejected:
    what: str
    why: str


@dataclass(frozen=True)
class GpuPart:
    """What one card holds."""

    gpu: int
    first_layer: int
    last_layer: int
    """Of the layers whose attention and cache it has."""
    num_resident: int
    """Routed experts on it; all are in memory too."""
    num_experts: int
    """There are, of these layers."""

    @property
    def text(self) -> str:
        layers = f"layers {self.first_layer} to {self.last_layer}"
        experts = f", {self.num_resident:,} of {self.num_experts:,} routed experts" if self.num_experts else ""
        return layers + experts


@dataclass(frozen=True)
class Plan:
    model: str
    source: str
    architecture: str
    quantization: str
    file_bytes: int
    is_estimate: bool
    context: int
    cache_type: CacheType
    num_sequences: int
    compute: Compute
    """As the engine decides it: not auto."""
    isa: str
    num_threads: int
    nodes: tuple[NodeShare, ...]
    gpu_parts: tuple[GpuPart, ...]
    ledger: tuple[LedgerEntry, ...]
    totals: tuple[PlaceTotal, ...]
    verdict: Verdict
    prefill: Prediction
    decode: Prediction
    decode_deep: Prediction
    rejected: tuple[Rejected, ...]
    notes: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def uses_card(self) -> bool:
        return bool(self.gpu_parts)

    def bytes_of(self, place: str) -> int:
        return next((total.num_bytes for total in self.totals if total.place == place), 0)


def peak_bytes(ledger: Iterable[LedgerEntry], place: str, weights: frozenset[str]) -> int:
    """While loading there are the weights and what loading needs; afterwards all that stays."""
    entries = [entry for entry in ledger if entry.place == place]
    staying = sum(entry.num_bytes for entry in entries if not entry.is_transient)
    loading = sum(entry.num_bytes for entry in entries if entry.is_transient or entry.what in weights)
    return max(staying, loading)
