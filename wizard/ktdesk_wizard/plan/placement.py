"""What cards hold: layers in order, each with its cache, and of the routed experts as many as there is room for.

What every token uses goes first, for a card reads ten times as fast as memory: attention, shared experts, dense
networks, norms, head, and the cache. The room that is left is for routed experts, the same number in every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ktdesk_engine.machine import divided
from ktdesk_wizard.plan.ledger import (
    CUDA_CONTEXT_BYTES,
    PINNED_STAGING_BYTES,
    Sizes,
    buffer_bytes,
    cache_entries,
    weight_entries,
)
from ktdesk_wizard.plan.model import EMBEDDING, PlannedModel, PlannedTensor
from ktdesk_wizard.plan.plan import MEMORY, GpuPart, LedgerEntry
from ktdesk_wizard.plan.speed import GpuShare
from ktdesk_wizard.probe.machine_facts import GpuFacts


@dataclass(frozen=True)
class Placement:
    shares: tuple[GpuShare, ...]
    parts: tuple[GpuPart, ...]
    ledger: tuple[LedgerEntry, ...]
    """Of the cards, and of what they need in memory."""
    in_memory: tuple[PlannedTensor, ...]
    """Whole tensors, and of experts that are divided what stays, see expert_bytes_moved."""
    expert_bytes_moved: int
    """Of routed experts in `in_memory`, as in the file, that lie on cards instead."""
    num_layers: int
    """Whose cache is on cards, from the first."""


def nothing_placed(model: PlannedModel) -> Placement:
    return Placement((), (), (), model.tensors, 0, 0)


def place(model: PlannedModel, cards: Sequence[tuple[GpuFacts, int]], sizes: Sizes) -> Placement:
    """cards: each with the bytes of it that may be used."""
    fixed = CUDA_CONTEXT_BYTES + buffer_bytes(model, sizes)
    usable = [max(num_bytes - fixed, 0) for _, num_bytes in cards]
    if not any(usable):
        return nothing_placed(model)
    wanted = divided(len(model.layers), usable)
    shares, parts, ledger, placed = [], [], [], set[str]()
    first = expert_bytes = 0
    for (facts, _), room, count in zip(cards, usable, wanted, strict=True):
        end = first + _fitting(model, first, count, room, sizes)
        if end == first:
            continue
        dense = _dense(model, first, end)
        share, part = _share(model, facts, dense, first, end, room, sizes)
        shares.append(share)
        parts.append(part)
        name = f"gpu {facts.index}"
        moved = _expert_bytes(model, first, end) * part.experts_per_layer // max(model.num_experts, 1)
        ledger += list(_card_entries(model, share, sizes, name, moved, fixed - CUDA_CONTEXT_BYTES))
        placed |= {tensor.name for tensor in dense}
        expert_bytes += moved
        first = end
    if shares:
        ledger.append(
            LedgerEntry(MEMORY, "hand-over buffers", PINNED_STAGING_BYTES * len(shares), "pinned, a card each")
        )
    in_memory = tuple(tensor for tensor in model.tensors if tensor.name not in placed)
    return Placement(tuple(shares), tuple(parts), tuple(ledger), in_memory, expert_bytes, first)


def _dense(model: PlannedModel, first: int, end: int) -> tuple[PlannedTensor, ...]:
    """Of these layers; the head goes with the last. Of the embedding single rows are read: it stays in memory."""
    has_last = end == len(model.layers)
    return tuple(
        tensor
        for tensor in model.tensors
        if not tensor.is_expert
        and (first <= tensor.layer < end or (has_last and tensor.layer < 0))
        and (tensor.name != EMBEDDING or (model.is_tied and has_last))
    )


def _bytes_of_layers(model: PlannedModel, first: int, end: int, sizes: Sizes) -> int:
    cache = sum(entry.num_bytes for entry in cache_entries(model.layers[first:end], sizes, ""))
    return cache + sum(tensor.memory_bytes(False) for tensor in _dense(model, first, end))


def _fitting(model: PlannedModel, first: int, count: int, room: int, sizes: Sizes) -> int:
    """How many of count layers fit."""
    while count and _bytes_of_layers(model, first, first + count, sizes) > room:
        count -= 1
    return count


def _expert_bytes(model: PlannedModel, first: int, end: int) -> int:
    return sum(tensor.num_bytes for tensor in model.tensors if tensor.is_expert and first <= tensor.layer < end)


def _share(
    model: PlannedModel,
    facts: GpuFacts,
    dense: tuple[PlannedTensor, ...],
    first: int,
    end: int,
    room: int,
    sizes: Sizes,
) -> tuple[GpuShare, GpuPart]:
    left = room - _bytes_of_layers(model, first, end, sizes)
    all_experts = _expert_bytes(model, first, end)
    resident = min(model.num_experts, left * model.num_experts // all_experts) if all_experts else 0
    num_moe = len({t.layer for t in model.tensors if t.is_expert and first <= t.layer < end})
    expert_share = resident / model.num_experts if model.num_experts else 1.0
    share = GpuShare(facts, dense, model.layers[first:end], expert_share, num_moe)
    return share, GpuPart(facts.index, first, end - 1, resident)


def _card_entries(
    model: PlannedModel, share: GpuShare, sizes: Sizes, name: str, expert_bytes: int, buffers: int
) -> Iterator[LedgerEntry]:
    on_card = Sizes(**{**vars(sizes), "is_packed": False})
    yield from weight_entries(model, share.dense, on_card, name)
    if expert_bytes:
        yield LedgerEntry(name, "routed experts", expert_bytes, f"{share.expert_share:.0%} of each layer's")
    yield from cache_entries(share.layers, sizes, name)
    yield LedgerEntry(name, "compute buffers", buffers, "a layer of a chunk, and logits")
    yield LedgerEntry(name, "runtime", CUDA_CONTEXT_BYTES, "of the driver")
