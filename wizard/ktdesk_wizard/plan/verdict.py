"""Whether it fits, and if not, the smallest change that would make it fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ktdesk_engine.config import CacheType
from ktdesk_engine.errors import ConfigError
from ktdesk_engine.kv_cache import PAGE_SIZE, check_cache_type
from ktdesk_wizard.plan.ledger import Sizes
from ktdesk_wizard.plan.model import PlannedModel
from ktdesk_wizard.plan.plan import Verdict
from ktdesk_wizard.plan.quantization import BITS_PER_WEIGHT

GIB = 2**30
FREEABLE_SHARE = 0.95
"""Of all memory, what can be had if everything else is closed; the system needs the rest."""
SMALLEST_CONTEXT = 2048
"""Below that a conversation is no use."""

Need = Callable[[Sizes], int]
"""Bytes of main memory at the most."""


def judge(
    model: PlannedModel,
    sizes: Sizes,
    need: Need,
    available_bytes: int | None,
    capacity_bytes: int | None,
    free_bytes: int | None,
) -> Verdict:
    """Of main memory: cards hold only what there is room for. free_bytes: available, were the plan not limited."""
    needed = need(sizes)
    if available_bytes is None:
        return Verdict("unknown", f"it needs {_gib(needed)} of memory; how much is available is unknown", 0, None)
    missing = needed - available_bytes
    if missing <= 0:
        return Verdict("fits", f"it needs {_gib(needed)} of the {_gib(available_bytes)} available", 0, None)
    if capacity_bytes is not None and needed <= FREEABLE_SHARE * capacity_bytes:
        message = f"it needs {_gib(needed)}, {_gib(available_bytes)} are available: free {_gib(missing)} first"
        return Verdict(
            "fits if you free memory", message, missing, _smallest_change(model, sizes, need, available_bytes)
        )
    most = max(available_bytes, int(FREEABLE_SHARE * (capacity_bytes or 0)))
    change = _smallest_change(model, sizes, need, most)
    is_limited = free_bytes is not None and free_bytes > most
    giver = "--max-memory gives" if is_limited else "this machine can give"
    message = f"it needs {_gib(needed)}, {giver} {_gib(most)}"
    if change is None and is_limited and needed <= (free_bytes or 0):
        change = f"--max-memory {math.ceil(10 * needed / GIB) / 10:g}"
    more = f"{math.ceil(needed / FREEABLE_SHARE / GIB)} GiB of memory: no quantization is small enough"
    return Verdict("does not fit", message, needed - most, change or more)


def _smallest_change(model: PlannedModel, sizes: Sizes, need: Need, most: int) -> str | None:
    """A smaller context, a smaller cache type, both, fewer sequences, or else a smaller file. None where there is none
    so small."""
    smaller: list[CacheType] = ["q8_0"] if sizes.cache_type != "q8_0" and _allows_q8(model) else []
    for cache_type in (sizes.cache_type, *smaller):
        context = _largest_context(replace(sizes, cache_type=cache_type), need, most)
        if context == sizes.context and cache_type != sizes.cache_type:
            return f"--cache-type {cache_type}"
        if context:
            kept = "" if cache_type == sizes.cache_type else f" --cache-type {cache_type}"
            return f"--context {context}{kept}"
    fewer = _most_sequences(sizes, need, most)
    if fewer:
        return f"--sequences {fewer}"
    least = need(replace(sizes, context=min(sizes.context, SMALLEST_CONTEXT)))
    weights = sum(tensor.memory_bytes(sizes.is_packed) for tensor in model.tensors)
    room = most - (least - weights)
    if room <= 0:
        return None
    bits = 8 * room / model.num_values
    if bits < min(BITS_PER_WEIGHT.values()):
        return None  # nobody makes such files
    return f"a file of at most {room / 1e9:.1f} GB, about {bits:.1f} bits a weight (this has {_bits(model):.1f})"


def _bits(model: PlannedModel) -> float:
    return 8 * sum(tensor.num_bytes for tensor in model.tensors) / model.num_values


def _allows_q8(model: PlannedModel) -> bool:
    try:
        check_cache_type([layer.shape for layer in model.layers if layer.shape is not None], "q8_0")
    except ConfigError:
        return False
    return True


def _largest_context(sizes: Sizes, need: Need, most: int) -> int:
    """In whole pages, by bisection; 0 where not even the smallest fits."""
    if need(sizes) <= most:
        return sizes.context
    low, high = SMALLEST_CONTEXT // PAGE_SIZE, sizes.context // PAGE_SIZE
    if high <= low or need(replace(sizes, context=low * PAGE_SIZE)) > most:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        if need(replace(sizes, context=middle * PAGE_SIZE)) <= most:
            low = middle
        else:
            high = middle
    return low * PAGE_SIZE


def _most_sequences(sizes: Sizes, need: Need, most: int) -> int:
    """Of this context, by bisection; 0 where there is one, or not even one fits."""
    low, high = 1, sizes.num_sequences
    if high == 1 or need(replace(sizes, num_sequences=1)) > most:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        if need(replace(sizes, num_sequences=middle)) <= most:
            low = middle
        else:
            high = middle
    return low


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
