"""Log-probabilities of a model file, without the rest of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.batch import Batch
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kv_cache import CachedSequence, KVCache
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.models.registry import family_of


def load_model(path: Path, isa: str | None = None) -> Decoder:
    file = GGUFFile.open(path)
    return family_of(file)(file, CpuBackend(kernels.worker_pool(2, isa)))


def logits(
    model: Decoder, cache: KVCache, sequence: CachedSequence, token_ids: Sequence[int], chunk: int
) -> np.ndarray:
    """Adds tokens to a sequence, `chunk` at a time: (T, V)."""
    parts = []
    for start in range(0, len(token_ids), chunk):
        ids = np.array(token_ids[start : start + chunk], np.int32)
        hidden = model.forward(Batch(ids, cache.extend(sequence, len(ids))), cache)
        parts.append(model.lm_head(hidden))
    return np.concatenate(parts)


def score(model: Decoder, token_ids: Sequence[int], chunk: int | None = None) -> np.ndarray:
    """(T, V) log-probabilities of the token after each, in a cache of its own."""
    cache = KVCache(model.cache_shapes, 128)
    return log_softmax(logits(model, cache, CachedSequence(), token_ids, chunk or len(token_ids)))


def log_softmax(values: np.ndarray) -> np.ndarray:
    """Over the last axis, in float64."""
    shifted = values.astype(np.float64) - values.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
