"""Keys and values of past tokens, in pages that sequences take and give back.

A page holds `page_size` positions of one sequence in every layer. Knows no model: a layer says how many heads
of which length it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import numpy as np

from ktdesk_engine.errors import ContextOverflowError
from ktdesk_engine.kernels import Floats, PagedContext

PAGE_SIZE = 64


@dataclass(frozen=True)
class LayerCacheShape:
    """What one layer keeps of a token."""

    num_kv_heads: int
    key_length: int
    value_length: int
    values_in_keys: bool = False
    """The value is the first value_length elements of the key: the latent of multi-head latent attention."""

    @property
    def num_floats(self) -> int:
        own_value = 0 if self.values_in_keys else self.value_length
        return self.num_kv_heads * (self.key_length + own_value)


def cache_bytes(shapes: SequenceOf[LayerCacheShape], context: int) -> int:
    """Bytes of the cache for `context` tokens, whole pages."""
    num_positions = math.ceil(context / PAGE_SIZE) * PAGE_SIZE
    return num_positions * sum(shape.num_floats for shape in shapes) * 4


@dataclass
class CachedSequence:
    """One sequence's pages, in order, and how many of their positions are filled."""

    pages: list[int] = field(default_factory=list)
    length: int = 0


class KVCache:
    """The pages of all layers. The memory of a page is touched when it is first written."""

    def __init__(self, shapes: SequenceOf[LayerCacheShape], context: int) -> None:
        num_pages = math.ceil(context / PAGE_SIZE)
        self.context = context
        self._free_pages = list(range(num_pages - 1, -1, -1))
        self._keys = [
            np.empty((num_pages, PAGE_SIZE, shape.num_kv_heads, shape.key_length), np.float32) for shape in shapes
        ]
        self._values = [
            keys[..., : shape.value_length]
            if shape.values_in_keys
            else np.empty((num_pages, PAGE_SIZE, shape.num_kv_heads, shape.value_length), np.float32)
            for shape, keys in zip(shapes, self._keys, strict=True)
        ]

    @property
    def num_free_pages(self) -> int:
        return len(self._free_pages)

    def extend(self, sequence: CachedSequence, num_tokens: int) -> PagedContext:
        """Room for num_tokens more of a sequence; says where they stand. ContextOverflowError, and nothing
        taken, where there is none."""
        length = sequence.length + num_tokens
        missing = math.ceil(length / PAGE_SIZE) - len(sequence.pages)
        if length > self.context or missing > self.num_free_pages:
            raise ContextOverflowError(
                f"{length} tokens do not fit the context of {self.context}: shorten the prompt, or start with a "
                "larger context"
            )
        sequence.pages += [self._free_pages.pop() for _ in range(missing)]
        positions = np.arange(sequence.length, length, dtype=np.int32)
        sequence.length = length
        return PagedContext(
            page_tables=np.array([sequence.pages], np.int32),
            sequences=np.zeros(num_tokens, np.int32),
            positions=positions,
        )

    def release(self, sequence: CachedSequence) -> None:
        """Gives all pages of a sequence back."""
        self._free_pages += reversed(sequence.pages)
        sequence.pages.clear()
        sequence.length = 0

    def write(self, layer: int, context: PagedContext, keys: Floats, values: Floats | None) -> None:
        """Stores keys and values (T, heads, D) of the batch's tokens; no values where they lie in the keys."""
        pages = context.page_tables[context.sequences, context.positions // PAGE_SIZE]
        offsets = context.positions % PAGE_SIZE
        self._keys[layer][pages, offsets] = keys
        if values is not None:
            self._values[layer][pages, offsets] = values

    def keys(self, layer: int) -> Floats:
        """(pages, PAGE_SIZE, heads, D)"""
        return self._keys[layer]

    def values(self, layer: int) -> Floats:
        """(pages, PAGE_SIZE, heads, D)"""
        return self._values[layer]
