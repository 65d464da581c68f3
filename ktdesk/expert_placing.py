"""Where experts would lie better, by how they are used: exchanges with an accelerator, or what a card would take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

MOST_ROOMS = 5


@dataclass(frozen=True)
class ExpertHeat:
    """How often each expert was used lately, and which lie on an accelerator."""

    rates: Sequence[Sequence[float]] = ()
    """(L, E)"""
    resident: Sequence[Sequence[bool]] | None = None
    """None without an accelerator."""
    blocks: Sequence[int] = ()
    """The N of `blk.N.` of each layer; empty: they are counted."""
    fixed_layers: Sequence[int] = ()
    """Whose experts lie where rules say."""
    slot_bytes: int = 0
    """Of one expert on an accelerator; 0: not told."""

    @cached_property
    def total(self) -> float:
        return sum(map(sum, self.rates))

    @property
    def num_experts(self) -> int:
        """Of all layers."""
        return sum(map(len, self.rates))

    def block(self, layer: int) -> int:
        return self.blocks[layer] if layer < len(self.blocks) else layer


class Place(NamedTuple):
    """An expert."""

    layer: int
    expert: int


class Exchange(NamedTuple):
    coming: Place
    leaving: Place
    coming_share: float
    """Of all hits."""
    leaving_share: float


@dataclass(frozen=True)
class Placing:
    """What the use of experts suggests."""

    num_resident: int = 0
    share_now: float = 0.0
    """Of all hits, those of experts on the accelerator."""
    share_then: float = 0.0
    exchanges: Sequence[Exchange] = ()
    """The ones that gain the most first."""


def better_placing(heat: ExpertHeat) -> Placing | None:
    """As many as lie there now, the most used of all layers that no rule places. None without accelerator or use."""
    if heat.resident is None or not heat.total:
        return None
    resident = heat.resident
    free = [place for place in _places(heat) if place.layer not in heat.fixed_layers]
    num_free = sum(resident[layer][expert] for layer, expert in free)
    wanted = set(sorted(free, key=lambda place: -_rate(heat, place))[:num_free])
    coming = sorted((p for p in wanted if not resident[p.layer][p.expert]), key=lambda place: -_rate(heat, place))
    leaving = sorted(
        (p for p in free if resident[p.layer][p.expert] and p not in wanted), key=lambda place: _rate(heat, place)
    )
    exchanges = [
        Exchange(come, leave, _rate(heat, come) / heat.total, _rate(heat, leave) / heat.total)
        for come, leave in zip(coming, leaving, strict=True)
        if _rate(heat, come) > _rate(heat, leave)
    ]
    held = sum(_rate(heat, place) for place in _places(heat) if resident[place.layer][place.expert]) / heat.total
    gained = sum(each.coming_share - each.leaving_share for each in exchanges)
    return Placing(sum(map(sum, resident)), held, held + gained, exchanges)


class Room(NamedTuple):
    """Of a card, for experts."""

    num_bytes: int
    num_experts: int
    share: float
    """Of all hits, those of the most used experts that fit."""


def rooms_of_a_card(heat: ExpertHeat) -> list[Room]:
    """Sizes that double, up to that of all experts; empty where nothing is known."""
    if not heat.slot_bytes or not heat.total:
        return []
    shares = sorted((rate / heat.total for row in heat.rates for rate in row), reverse=True)
    whole = heat.num_experts * heat.slot_bytes
    return [
        Room(num_bytes, count, sum(shares[:count]))
        for num_bytes in _sizes(whole)
        if (count := min(num_bytes // heat.slot_bytes, heat.num_experts))
    ]


def _sizes(whole: int) -> list[int]:
    """Powers of two below it, and itself; in GiB where it is large."""
    size = 1
    while 2 * size < whole:
        size *= 2
    below = [size >> shift for shift in reversed(range(MOST_ROOMS - 1)) if size >> shift]
    return [*below, whole]


def _places(heat: ExpertHeat) -> Iterator[Place]:
    return (Place(layer, expert) for layer, row in enumerate(heat.rates) for expert in range(len(row)))


def _rate(heat: ExpertHeat, place: Place) -> float:
    return heat.rates[place.layer][place.expert]
