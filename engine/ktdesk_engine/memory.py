"""How much context fits."""

from __future__ import annotations

from ktdesk_engine.errors import ConfigError, ResourceError
from ktdesk_engine.kv_cache import PAGE_SIZE, cache_bytes
from ktdesk_engine.models.base import Decoder

CACHE_SHARE = 0.25
"""Of the available memory that the cache may take where the user names no context: the rest is for the weights."""


def decide_context(wish: int | None, model: Decoder, available_bytes: int) -> int:
    """Tokens of context. A wish is kept or refused; without one, what the model was trained for as far as it fits."""
    page_bytes = cache_bytes(model.cache_shapes, PAGE_SIZE)
    if wish is None:
        affordable = int(CACHE_SHARE * available_bytes) // page_bytes * PAGE_SIZE
        context = min(model.context_length, affordable)
        if context < 1:
            raise _does_not_fit(PAGE_SIZE, page_bytes, available_bytes)
        return context
    if wish > model.context_length:
        raise ConfigError(
            f"a context of {wish} tokens was asked for, but the model was trained for {model.context_length}: ask for "
            "at most that"
        )
    needed_bytes = cache_bytes(model.cache_shapes, wish)
    if needed_bytes > available_bytes:
        raise _does_not_fit(wish, needed_bytes, available_bytes)
    return wish


def _does_not_fit(context: int, needed_bytes: int, available_bytes: int) -> ResourceError:
    return ResourceError(
        f"the cache for a context of {context} tokens needs {needed_bytes / 2**30:.2f} GiB, but "
        f"{available_bytes / 2**30:.2f} GiB of memory are available: ask for a smaller context, or close something"
    )
