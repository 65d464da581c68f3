"""The prefix cache over pages of llama.cpp: the tier in memory, where a page must be held before others may have it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ktdesk_engine.llamacpp.pages import LlamaPages
from ktdesk_engine.prefix_cache.cache import PrefixCache
from ktdesk_engine.prefix_cache.lease import Lease


class LlamaPrefixCache(PrefixCache):
    """Shares what can be shared; of models with states, nothing."""

    def __init__(self, pages: LlamaPages) -> None:
        super().__init__(pages)
        self._pages = pages

    def insert(self, lease: Lease, keys: Sequence[bytes], pages: Sequence[int]) -> list[int]:
        num_held = len(list(takewhile(self._pages.is_held, pages)))
        shared = super().insert(lease, keys[:num_held], pages[:num_held])
        if num_held < len(pages):
            self.clear()  # all holders had a page of that number: the next ones find room
        return [*shared, *pages[num_held:]]
