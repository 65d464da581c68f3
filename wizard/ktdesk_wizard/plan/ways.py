"""The ways to compute beside each other: what each takes, and how fast it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ktdesk_engine.config import Compute
from ktdesk_wizard.plan.plan import MEMORY, Plan
from ktdesk_wizard.plan.wishes import Wishes

WAYS: tuple[Compute, ...] = ("int8", "mixed", "bf16", "float32")


@dataclass(frozen=True)
class Way:
    compute: Compute
    memory_bytes: int
    prefill_tok_s: float | None
    decode_tok_s: float | None


def ways_to_compute(planned_with: Callable[[Wishes], Plan], wishes: Wishes) -> tuple[Way, ...]:
    """Those that the machine of the plan has."""
    plans = [planned_with(replace(wishes, compute=compute)) for compute in WAYS]
    ways = [Way(p.compute, p.bytes_of(MEMORY), p.prefill.tok_s, p.decode.tok_s) for p in plans]
    return tuple(way for way, wished in zip(ways, WAYS, strict=True) if way.compute == wished)
