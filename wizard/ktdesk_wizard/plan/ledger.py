"""Bytes of a model in main memory and on cards, class by class. docs/planning.md explains each formula."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ktdesk_engine.config import CacheType
from ktdesk_engine.kernels.packing import STEP_BYTES
from ktdesk_engine.kv_cache import cache_bytes
from ktdesk_wizard.plan.cache import LayerCache
from ktdesk_wizard.plan.model import EMBEDDING, FLOAT_BYTES, HEAD, PlannedModel, PlannedTensor
from ktdesk_wizard.plan.plan import MEMORY, LedgerEntry
from ktdesk_wizard.tensor_classes import CLASSES, OTHER

MIB = 2**20
RUNTIME_BYTES = 63 * MIB
"""The interpreter, numpy and the extension, measured (docs/planning.md)."""
SERVER_BYTES = 36 * MIB
"""Of the server that `run` and `chat` start, beside that."""
TOKEN_BYTES = 480
"""Of a vocabulary's entry and its merge, in the tables of the tokenizer."""
MAPPED_AROUND_BYTES = 64 << 10
"""That Linux maps of a file around the byte that is looked at (fault_around_bytes)."""
CUDA_CONTEXT_BYTES = 600 * MIB
"""Of a process on a card: 300 to 600 MiB, from the literature; to be measured where there is one."""
PINNED_STAGING_BYTES = 64 * MIB
"""Buffers through which cards and processor hand each other their results."""
ROUNDING = "rounding to huge pages"
ONLY_EMBEDDING, ONLY_HEAD = "embedding", "head"
WEIGHTS = frozenset({*(name for name, _ in CLASSES), OTHER, ROUNDING, ONLY_EMBEDDING, ONLY_HEAD})
"""The lines of a ledger that are of weights."""


@dataclass(frozen=True)
class Sizes:
    """What was decided, as far as bytes depend on it."""

    context: int
    cache_type: CacheType
    num_sequences: int
    prefill_chunk: int
    is_packed: bool
    has_huge_pages: bool
    cuts_windows: bool
    has_server: bool = True
    """That it is kept in. False: one process alone."""


def weight_entries(
    model: PlannedModel, tensors: Iterable[PlannedTensor], sizes: Sizes, place: str
) -> list[LedgerEntry]:
    """A line a class, and one for what huge pages add."""
    counts: Counter[tuple[str, str]] = Counter()
    rounding = 0
    for tensor in tensors:
        in_memory = tensor.memory_bytes(sizes.is_packed and not _is_only_embedding(model, tensor))
        how = "in panels" if sizes.is_packed and tensor.has_panels else "as in the file"
        how = "in float32" if tensor.is_unpacked else how
        if _is_only_embedding(model, tensor):
            in_memory, how = _looked_at_bytes(in_memory, sizes), "rows in the file, as they are looked up"
        counts[_what(model, tensor), how] += in_memory
        rounding += tensor.rounding_bytes() if how == "in panels" else 0
    entries = [LedgerEntry(place, name, num_bytes, how) for (name, how), num_bytes in counts.items()]
    entries.sort(key=lambda entry: -entry.num_bytes)
    if rounding and sizes.has_huge_pages and place == MEMORY:
        entries.append(LedgerEntry(place, ROUNDING, rounding, "each tensor in panels begins a page of 2 MiB"))
    return entries


def _what(model: PlannedModel, tensor: PlannedTensor) -> str:
    """Its class. Embedding and head are apart, unless they are one: of the embedding rows are read in the file."""
    if tensor.name == EMBEDDING and not model.is_tied:
        return ONLY_EMBEDDING
    return ONLY_HEAD if tensor.name == HEAD else tensor.tensor_class


def _is_only_embedding(model: PlannedModel, tensor: PlannedTensor) -> bool:
    """Of it single rows are read, where they lie in the file. A tied one is the head too."""
    return tensor.name == EMBEDDING and not model.is_tied


def _looked_at_bytes(num_bytes: int, sizes: Sizes) -> int:
    """Of a table in the file: for each token a row, and what is mapped around it. Those of many tokens overlap."""
    mapped = sizes.num_sequences * sizes.context * MAPPED_AROUND_BYTES
    return round(num_bytes * -math.expm1(-mapped / num_bytes)) if num_bytes else 0


def cache_entries(layers: Iterable[LayerCache], sizes: Sizes, place: str) -> Iterator[LedgerEntry]:
    """A line a kind of layer."""
    kinds: dict[str, list[LayerCache]] = {}
    for layer in layers:
        kinds.setdefault(layer.kind, []).append(layer)
    for kind, of_kind in kinds.items():
        num_bytes = sizes.num_sequences * sum(_taken_bytes(layer, sizes) for layer in of_kind)
        formula = f"{len(of_kind)} layers, {sizes.num_sequences} x {sizes.context:,} tokens, {sizes.cache_type}"
        if kind == "recurrent":
            formula = f"{len(of_kind)} layers, a state of {sizes.num_sequences} sequences"
        elif kind == "sliding" and not sizes.cuts_windows:
            formula += f"; a window of {of_kind[0].window:,} would do, but whole contexts are kept"
        yield LedgerEntry(place, f"cache, {kind}", num_bytes, formula)


def _taken_bytes(layer: LayerCache, sizes: Sizes) -> int:
    """By the engine for one sequence: whole pages."""
    if layer.shape is None:
        return layer.state_bytes
    context = min(sizes.context, layer.window) if layer.window and sizes.cuts_windows else sizes.context
    return cache_bytes([layer.shape], context, sizes.cache_type)


def buffer_bytes(model: PlannedModel, sizes: Sizes) -> int:
    """What one layer of a chunk of the prompt needs side by side, and the logits: float32, and the byte forms of what
    is multiplied, which are half as much."""
    T = min(sizes.prefill_chunk, sizes.context)
    used = max(model.num_used, 1)
    dense, shared = (_widest(model, gate) for gate in (".ffn_gate.", ".ffn_gate_shexp."))
    experts = used * (2 * model.expert_width + model.hidden)
    attention = max((sum(layer.row_lengths) for layer in model.layers), default=0) * model.num_heads
    row = 4 * model.hidden + max(experts, 2 * dense, 2 * shared, attention)
    before = 2 * dense if model.num_experts else 0  # what dense layers needed stays in the heap beside it
    logits = sizes.num_sequences * model.vocab_size
    return T * row * FLOAT_BYTES * 3 // 2 + (T * before + logits) * FLOAT_BYTES


def _widest(model: PlannedModel, gate: str) -> int:
    return max((t.shape[1] for t in model.tensors if len(t.shape) == 2 and gate in t.name), default=0)


def _is_packed_and_looked_up(model: PlannedModel, tensor: PlannedTensor, sizes: Sizes) -> bool:
    """An embedding that is the head too."""
    return tensor.name == EMBEDDING and model.is_tied and sizes.is_packed and tensor.has_panels


def overhead_entries(model: PlannedModel, sizes: Sizes) -> Iterator[LedgerEntry]:
    """Besides weights and cache, in main memory."""
    T = min(sizes.prefill_chunk, sizes.context)
    yield LedgerEntry(MEMORY, "compute buffers", buffer_bytes(model, sizes), f"a layer of {T} tokens, and logits")
    yield LedgerEntry(MEMORY, "tokenizer", model.vocab_size * TOKEN_BYTES, f"{model.vocab_size:,} tokens")
    rows = sum(_looked_at_bytes(t.num_bytes, sizes) for t in model.tensors if _is_packed_and_looked_up(model, t, sizes))
    if rows:
        yield LedgerEntry(MEMORY, "embedding rows", rows, "in the file, as they are looked up; the head is in panels")
    yield LedgerEntry(MEMORY, "runtime", RUNTIME_BYTES, "interpreter, numpy, extension")
    if sizes.has_server:
        yield LedgerEntry(MEMORY, "server", SERVER_BYTES, "which `run`, `chat` and the app start")
    largest = max((tensor.num_bytes for tensor in model.tensors), default=0)
    staging = min(2 * STEP_BYTES, largest)
    yield LedgerEntry(MEMORY, "file being read", staging, "the step that is packed and the next", is_transient=True)
