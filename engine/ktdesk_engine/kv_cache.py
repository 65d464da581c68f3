"""Keys and values of past tokens, in pages that sequences take and give back.

A page holds `page_size` positions of one sequence in every layer. Knows no model: a layer says how many heads
of which length it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ktdesk_engine.backends.host_memory import HostMemory
from ktdesk_engine.config import CacheType
from ktdesk_engine.errors import ConfigError, ContextOverflowError
from ktdesk_engine.kernels import Blocks, CachedRows, Ids, PagedContext, cached_row_bytes
from ktdesk_engine.quants.formats import BLOCKS, WeightType

PageBytes = npt.NDArray[np.uint8]

PAGE_SIZE = 64

WEIGHT_TYPES: dict[CacheType, WeightType] = {
    "float32": WeightType.F32,
    "f16": WeightType.F16,
    "bf16": WeightType.BF16,
    "q8_0": WeightType.Q8_0,
}


@dataclass(frozen=True)
class LayerCacheShape:
    """What one layer keeps of a token."""

    num_kv_heads: int
    key_length: int
    value_length: int
    values_in_keys: bool = False
    """The value is the first value_length elements of the key: the latent of multi-head latent attention."""

    @property
    def row_lengths(self) -> list[int]:
        """Elements of what is kept for each head."""
        return [self.key_length] if self.values_in_keys else [self.key_length, self.value_length]

    def num_bytes(self, cache_type: CacheType) -> int:
        """Of one token."""
        weight_type = WEIGHT_TYPES[cache_type]
        return self.num_kv_heads * sum(cached_row_bytes(weight_type, length) for length in self.row_lengths)


def cache_bytes(shapes: SequenceOf[LayerCacheShape], context: int, cache_type: CacheType) -> int:
    """Bytes of the cache for `context` tokens, whole pages."""
    num_positions = math.ceil(context / PAGE_SIZE) * PAGE_SIZE
    return num_positions * sum(shape.num_bytes(cache_type) for shape in shapes)


def check_cache_type(shapes: SequenceOf[LayerCacheShape], cache_type: CacheType) -> None:
    """ConfigError where heads are no whole number of the type's blocks."""
    block = BLOCKS[WEIGHT_TYPES[cache_type]].values
    for shape in shapes:
        for length in (shape.key_length, shape.value_length):
            if length % block:
                raise ConfigError(
                    f"a cache of type {cache_type} has blocks of {block} values, but this model's heads have {length}: "
                    "use f16 or bf16"
                )


@dataclass
class CachedSequence:
    """One sequence's pages, in order, and how many of their positions are filled."""

    pages: list[int] = field(default_factory=list)
    length: int = 0


class CacheMemory(Protocol):
    """Where keys and values lie."""

    def cache_memory(self, *shape: int) -> Blocks:
        """Not yet filled."""

    def read_memory(self, memory: Blocks) -> PageBytes:
        """A copy on the host, (bytes,)."""

    def write_memory(self, memory: Blocks, content: PageBytes) -> None: ...


HOST = HostMemory()


class KVCache:
    """The pages of all layers. The memory of a page is touched when it is first written."""

    def __init__(
        self,
        shapes: SequenceOf[LayerCacheShape],
        context: int,
        cache_type: CacheType = "float32",
        num_sequences: int = 1,
        device: CacheMemory | None = HOST,
    ) -> None:
        """context: tokens that one sequence may have. num_sequences: how many of that length the pages suffice for.

        device: where they are computed with. None: they get their memory later.
        """
        check_cache_type(shapes, cache_type)
        self.context = context
        self.num_pages = num_sequences * self.max_pages
        self.page_bytes = cache_bytes(shapes, PAGE_SIZE, cache_type)
        """Of one page, in all layers."""
        self._shapes = shapes
        self._weight_type = WEIGHT_TYPES[cache_type]
        self._free_pages = list(range(self.num_pages - 1, -1, -1))
        self._keys: list[CachedRows] = []
        self._values: list[CachedRows] = []
        if device is not None:
            self._device = device
            self._lie_in(partial(device.cache_memory, self.num_pages))

    @property
    def max_pages(self) -> int:
        """Of one sequence: the width of page tables."""
        return math.ceil(self.context / PAGE_SIZE)

    @property
    def num_free_pages(self) -> int:
        return len(self._free_pages)

    @property
    def num_bytes(self) -> int:
        """Of all pages."""
        return self.num_pages * self.page_bytes

    @property
    def num_ready_pages(self) -> int:
        """Of the free ones, those that have memory."""
        return self.num_free_pages

    def take_page(self) -> int:
        """One of the free pages."""
        return self._take(1)[0]

    def give_back(self, page: int) -> None:
        self._free_pages.append(page)

    def read_page(self, page: int) -> PageBytes:
        """A copy, of page_bytes: layer after layer, keys before values."""
        return np.concatenate([self._device.read_memory(array[page]) for array in self._arrays()])

    def write_page(self, page: int, content: PageBytes) -> None:
        """What `read_page` gave, of this page or another."""
        start = 0
        for array in self._arrays():
            end = start + math.prod(array.shape[1:])
            self._device.write_memory(array[page], content[start:end])
            start = end

    def _arrays(self) -> list[PageBytes]:
        """Of all pages, each once: values that lie in the keys are not counted again."""
        return [
            rows.pages
            for keys, values in zip(self._keys, self._values, strict=True)
            for rows in ([keys] if values.pages is keys.pages else [keys, values])
        ]

    def extend(self, sequence: CachedSequence, num_tokens: int) -> PagedContext:
        """Room for num_tokens more of a sequence; says where they stand. ContextOverflowError, and nothing
        taken, where there is none."""
        begin = sequence.length
        self.grow([sequence], num_tokens)
        return PagedContext(
            page_tables=self._page_tables([sequence]),
            sequences=np.zeros(num_tokens, np.int32),
            positions=np.arange(begin, sequence.length, dtype=np.int32),
        )

    def grow(self, sequences: SequenceOf[CachedSequence], num_tokens: int) -> None:
        """Room for num_tokens more of each of these different sequences, as `extend` for one."""
        missing = [-(-(s.length + num_tokens) // PAGE_SIZE) - len(s.pages) for s in sequences]
        length = max(sequence.length for sequence in sequences) + num_tokens
        if length > self.context or sum(max(count, 0) for count in missing) > self.num_free_pages:
            raise ContextOverflowError(
                f"{length} tokens do not fit the context of {self.context}: shorten the prompt, or start with a "
                "larger context"
            )
        pages = iter(self._take(sum(max(count, 0) for count in missing)))
        for sequence, num_missing in zip(sequences, missing, strict=True):
            sequence.pages += [next(pages) for _ in range(num_missing)]
            sequence.length += num_tokens

    def last_tokens(self, sequences: SequenceOf[CachedSequence]) -> PagedContext:
        """Where the last token of each stands."""
        return PagedContext(
            page_tables=self._page_tables(sequences),
            sequences=np.arange(len(sequences), dtype=np.int32),
            positions=np.array([sequence.length - 1 for sequence in sequences], np.int32),
        )

    def _page_tables(self, sequences: SequenceOf[CachedSequence]) -> Ids:
        """(S, max_pages). Behind the pages that a sequence has stands page 0, at which no token looks."""
        tables = np.zeros((len(sequences), self.max_pages), np.int32)
        for table, sequence in zip(tables, sequences, strict=True):
            table[: len(sequence.pages)] = sequence.pages
        return tables

    def release(self, sequence: CachedSequence) -> None:
        """Gives all pages of a sequence back."""
        for page in reversed(sequence.pages):
            self.give_back(page)
        sequence.pages.clear()
        sequence.length = 0

    def places(self, pages: list[int]) -> list[int]:
        """Where these pages lie in `keys` and `values`: what page tables name when they are computed with."""
        return pages

    def placed(self, context: PagedContext) -> PagedContext:
        """With places instead of pages."""
        return context

    def keys(self, layer: int) -> CachedRows:
        """Of all pages."""
        return self._keys[layer]

    def values(self, layer: int) -> CachedRows:
        """Of all pages."""
        return self._values[layer]

    def _take(self, num_pages: int) -> list[int]:
        """Of the free ones, which are as many at least."""
        return [self._free_pages.pop() for _ in range(num_pages)]

    def _lie_in(self, memory: Callable[..., Blocks]) -> None:
        """memory(heads, PAGE_SIZE, row bytes): of all places, one after the other.

        A head's positions lie side by side: a thread reads one head of a page from beginning to end.
        """

        def rows(shape: LayerCacheShape, length: int) -> CachedRows:
            row_bytes = cached_row_bytes(self._weight_type, length)
            return CachedRows(self._weight_type, length, memory(shape.num_kv_heads, PAGE_SIZE, row_bytes))

        self._keys, self._values = [], []
        for shape in self._shapes:
            keys = rows(shape, shape.key_length)
            self._keys.append(keys)
            in_keys = shape.values_in_keys
            self._values.append(
                replace(keys, length=shape.value_length) if in_keys else rows(shape, shape.value_length)
            )
