"""How the cache keeps its numbers, and how much context fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ktdesk_engine.config import CacheType, Compute
from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kv_cache import PAGE_SIZE, LayerCacheShape, cache_bytes, check_cache_type

CACHE_SHARE = 0.25
"""Of the available memory that the cache may take where the user names no context: the rest is for the weights."""


class CachedModel(Protocol):
    """What is asked of a model here."""

    @property
    def context_length(self) -> int:
        """Tokens it was trained for."""

    @property
    def cache_shapes(self) -> Sequence[LayerCacheShape]:
        """What each layer keeps of a token."""


def decide_cache_type(wish: CacheType | None, compute: Compute) -> CacheType:
    """A wish is kept. Without one, the exact path keeps all bits, and others 16: f16, whose error is an eighth of
    bf16's."""
    if wish is not None:
        return wish
    return "float32" if compute == "float32" else "f16"


def decide_context(
    wish: int | None, model: CachedModel, available_bytes: int, cache_type: CacheType, num_sequences: int = 1
) -> int:
    """Tokens of context, for each of so many sequences. A wish is kept or refused; without one, what the model was
    trained for as far as it fits."""
    check_cache_type(model.cache_shapes, cache_type)
    page_bytes = num_sequences * cache_bytes(model.cache_shapes, PAGE_SIZE, cache_type)
    if wish is None:
        if page_bytes == 0:  # a model that keeps states, and nothing of each token
            return model.context_length
        affordable = int(CACHE_SHARE * available_bytes) // page_bytes * PAGE_SIZE
        context = min(model.context_length, affordable)
        if context < 1:
            raise _does_not_fit(PAGE_SIZE, num_sequences, page_bytes, available_bytes)
        return context
    if wish > model.context_length:
        raise ConfigError(
            f"a context of {wish} tokens was asked for, but the model was trained for {model.context_length}: ask for "
            "at most that"
        )
    needed_bytes = num_sequences * cache_bytes(model.cache_shapes, wish, cache_type)
    if needed_bytes > available_bytes:
        raise _does_not_fit(wish, num_sequences, needed_bytes, available_bytes)
    return wish


def _does_not_fit(context: int, num_sequences: int, needed_bytes: int, available_bytes: int) -> ResourceError:
    times = f"{num_sequences} times " if num_sequences > 1 else ""
    return ResourceError(
        f"the cache for {times}a context of {context} tokens needs {needed_bytes / 2**30:.2f} GiB, but "
        f"{available_bytes / 2**30:.2f} GiB of memory are available: ask for a smaller context or cache type, or close "
        "something"
    )
