"""What a card holds, as the engine fills it: all that every token uses and the whole cache, then routed experts.

The engine uses one card. On it lie attention, shared experts, dense networks, norms, embedding and head, in the forms
that its kernels read, and the cache; what is left are slots, each of the size of the largest expert. Rules may put
layers' experts there, or keep them away. Experts in slots keep their copy in memory: who leaves a slot can be computed
there at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ktdesk_engine.backends.accelerator import RESERVED_BYTES
from ktdesk_engine.backends.cuda.card_bytes import card_bytes
from ktdesk_engine.placement import choose_residents, has_room_to_pass, work_bytes
from ktdesk_engine.placement_rules import Rule, apply_rules
from ktdesk_wizard.plan.ledger import CUDA_CONTEXT_BYTES, PINNED_STAGING_BYTES, Sizes, cache_entries
from ktdesk_wizard.plan.model import FLOAT_BYTES, PlannedModel, PlannedTensor
from ktdesk_wizard.plan.plan import MEMORY, GpuPart, LedgerEntry
from ktdesk_wizard.plan.speed import GpuShare
from ktdesk_wizard.probe.machine_facts import GpuFacts

GIB = 2**30


@dataclass(frozen=True)
class Placement:
    shares: tuple[GpuShare, ...]
    parts: tuple[GpuPart, ...]
    ledger: tuple[LedgerEntry, ...]
    """Of the card, and of what it needs in memory."""
    in_memory: tuple[PlannedTensor, ...]
    has_cache: bool
    """Whether the cache is on the card."""
    why_not: str | None = None
    """Why nothing is on the card."""


def nothing_placed(model: PlannedModel, why_not: str | None = None) -> Placement:
    return Placement((), (), (), model.tensors, has_cache=False, why_not=why_not)


def place(model: PlannedModel, card: tuple[GpuFacts, int], sizes: Sizes, rules: Sequence[Rule] = ()) -> Placement:
    """card: with the bytes of it that may be used. ConfigError for rules that the engine would refuse."""
    facts, num_bytes = card
    name = f"gpu {facts.index}"
    dense = tuple(tensor for tensor in model.tensors if not tensor.is_expert)
    always = [
        *_dense_entries(dense, name),
        *cache_entries(model.layers, sizes, name),
        *_work_entries(model, sizes, name),
    ]
    left = num_bytes - sum(entry.num_bytes for entry in always)
    experts = _experts(model, max(left, 0), sizes, rules)
    if left < 0:
        needed = (num_bytes - left) / GIB
        return nothing_placed(
            model,
            f"what every token uses and the cache take {needed:.1f} GiB there, and {num_bytes / GIB:.1f} may be used: "
            "ask for a smaller context, or for a cache in q8_0",
        )
    share = GpuShare(facts, dense, model.layers, experts.share, experts.num_layers)
    part = GpuPart(facts.index, 0, len(model.layers) - 1, experts.num_resident, experts.num_experts)
    pinned = LedgerEntry(MEMORY, "hand-over buffers", PINNED_STAGING_BYTES, "pinned")
    ledger = (*always, *experts.entries(name), pinned)
    return Placement((share,), (part,), ledger, tuple(t for t in model.tensors if t.is_expert), has_cache=True)


@dataclass(frozen=True)
class _Experts:
    """The routed ones of all layers."""

    num_layers: int
    num_experts: int
    num_resident: int
    slot_bytes: int
    stage_bytes: int
    """Two layers' for long prompts; 0: they do not pass through the card."""
    note: str

    @property
    def share(self) -> float:
        return self.num_resident / self.num_experts if self.num_experts else 1.0

    def entries(self, place: str) -> Iterator[LedgerEntry]:
        if self.num_resident:
            formula = f"{self.num_resident:,} of {self.num_experts:,}{self.note}; more while the cache is not full"
            if self.num_resident == self.num_experts:
                formula = f"all {self.num_experts:,}"
            yield LedgerEntry(place, "routed experts", self.num_resident * self.slot_bytes, formula)
        if self.stage_bytes:
            yield LedgerEntry(place, "experts that pass", self.stage_bytes, "two layers', for long prompts")


def _experts(model: PlannedModel, left: int, sizes: Sizes, rules: Sequence[Rule]) -> _Experts:
    """In so many bytes of a card. ConfigError for rules that cannot be kept."""
    layers = sorted({tensor.layer for tensor in model.tensors if tensor.is_expert})
    of_model = apply_rules(rules, sorted(tensor.name for tensor in model.tensors), layers)
    if not layers:
        return _Experts(0, 0, 0, 0, 0, "")
    E = model.num_experts
    of_layers = [sum(_card_bytes(t) for t in model.tensors if t.is_expert and t.layer == layer) for layer in layers]
    slot = -(-max(of_layers) // E)
    stage = 2 * E * slot
    stage = stage if has_room_to_pass(stage, left + RESERVED_BYTES + _work(model, sizes)) else 0
    num_slots = max(left - stage, 0) // slot
    mask = choose_residents("uniform", np.zeros((len(layers), E)), num_slots, of_model)
    forced, forbidden = len(of_model.forced), len(of_model.forbidden)
    told = [f"those of {forced} layers by rules"] if forced else []
    told += [f"none of {forbidden} layers by rules"] if forbidden else []
    return _Experts(len(layers), mask.size, int(mask.sum()), slot, stage, "".join(f", {text}" for text in told))


def _dense_entries(dense: Sequence[PlannedTensor], place: str) -> Iterator[LedgerEntry]:
    """A line a class, the largest first."""
    sizes: dict[str, int] = {}
    for tensor in dense:
        sizes[tensor.tensor_class] = sizes.get(tensor.tensor_class, 0) + _card_bytes(tensor)
    for name, num_bytes in sorted(sizes.items(), key=lambda item: -item[1]):
        yield LedgerEntry(place, name, num_bytes, "as its kernels read it")


def _card_bytes(tensor: PlannedTensor) -> int:
    """Where the type is not known, as in the file."""
    if not tensor.is_matrix or tensor.is_unpacked:
        return FLOAT_BYTES * tensor.num_values
    return tensor.num_bytes if tensor.weight_type is None else card_bytes(tensor.weight_type, tensor.num_values)


def _work(model: PlannedModel, sizes: Sizes) -> int:
    num_tokens = min(sizes.prefill_chunk, sizes.context)
    return work_bytes(num_tokens, model.hidden, model.expert_width, model.num_used)


def _work_entries(model: PlannedModel, sizes: Sizes, place: str) -> Iterator[LedgerEntry]:
    logits = sizes.num_sequences * model.vocab_size * FLOAT_BYTES
    yield LedgerEntry(place, "compute buffers", _work(model, sizes) + logits, "a layer of a chunk, and logits")
    yield LedgerEntry(place, "reserve", RESERVED_BYTES, "recorded steps, unpacked matrices, what libraries round up")
    yield LedgerEntry(place, "runtime", CUDA_CONTEXT_BYTES, "of the driver")
