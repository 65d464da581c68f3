"""Tokens through the model: prompts in chunks, answers one at a time, over the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ktdesk_engine.batch import Batch
from ktdesk_engine.errors import EngineError
from ktdesk_engine.kernels import Floats
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.models.base import Decoder


class Runner:
    """One model and its cache."""

    def __init__(self, model: Decoder, cache: KVCache, prefill_chunk: int, vocab_size: int) -> None:
        """vocab_size: tokens there are. An embedding may have more rows, to fill it up; they are left out."""
        self._model = model
        self._vocab_size = vocab_size
        self._cache = cache
        self._prefill_chunk = prefill_chunk

    def next_logits(self, sequence: CachedSequence, token_ids: Sequence[int]) -> Floats:
        """Adds tokens to a sequence; the logits (V,) of the token after them."""
        for hidden in self._hidden(sequence, token_ids):
            last = hidden[-1:]
        return self._logits(last)[0]

    def all_logits(self, sequence: CachedSequence, token_ids: Sequence[int]) -> Iterator[Floats]:
        """Adds tokens to a sequence; the logits (T, V) of the token after each, chunk by chunk."""
        for hidden in self._hidden(sequence, token_ids):
            yield self._logits(hidden)

    def release(self, sequence: CachedSequence) -> None:
        """Gives the sequence's pages back."""
        self._cache.release(sequence)

    def _hidden(self, sequence: CachedSequence, token_ids: Sequence[int]) -> Iterator[Floats]:
        for start in range(0, len(token_ids), self._prefill_chunk):
            chunk = np.array(token_ids[start : start + self._prefill_chunk], np.int32)
            batch = Batch(chunk, self._cache.extend(sequence, len(chunk)))
            yield self._model.forward(batch, self._cache)

    def _logits(self, hidden: Floats) -> Floats:
        logits = self._model.lm_head(hidden)[:, : self._vocab_size]
        if not np.isfinite(logits).all():
            raise EngineError(
                "the model computed values that are not finite numbers: its weights are damaged (compare the "
                "file's checksum with the one where it came from, and fetch it again)"
            )
        return logits
