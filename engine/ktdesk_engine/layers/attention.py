"""Grouped-query attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ktdesk_engine.batch import Batch
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import AttentionRule, Floats, Turns
from ktdesk_engine.kv_cache import KVCache, LayerCacheShape
from ktdesk_engine.layers.linear import Linear
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope
from ktdesk_engine.weights import Weights

MAX_HEAD_SIZE = 4096


@dataclass(frozen=True)
class AttentionShape:
    """num_heads is a multiple of num_kv_heads."""

    hidden: int
    num_heads: int
    num_kv_heads: int
    key_length: int
    value_length: int

    @property
    def cache(self) -> LayerCacheShape:
        return LayerCacheShape(self.num_kv_heads, self.key_length, self.value_length)


def attention_shapes(hparams: Metadata, num_blocks: int) -> tuple[AttentionShape, ...]:
    """Of each block that the file counts, from the keys `attention.*`; all with the same head size."""
    hidden = hparams.integer("embedding_length", minimum=1)
    heads = heads_per_layer(hparams, "attention.head_count", num_blocks, hidden)
    kv_heads = heads
    if hparams.has("attention.head_count_kv"):
        kv_heads = heads_per_layer(hparams, "attention.head_count_kv", num_blocks, max(heads))
    if any(num_heads % num_kv_heads for num_heads, num_kv_heads in zip(heads, kv_heads, strict=True)):
        raise hparams.unsupported("attention.head_count_kv", f"divisors of the {heads[0]} heads")
    head_size = hidden // heads[0]
    key_length = hparams.integer("attention.key_length", head_size, minimum=1, maximum=MAX_HEAD_SIZE)
    value_length = hparams.integer("attention.value_length", head_size, minimum=1, maximum=MAX_HEAD_SIZE)
    return tuple(
        AttentionShape(hidden, num_heads, num_kv_heads, key_length, value_length)
        for num_heads, num_kv_heads in zip(heads, kv_heads, strict=True)
    )


def heads_per_layer(hparams: Metadata, key: str, num_blocks: int, maximum: int) -> tuple[int, ...]:
    """UnsupportedError where some layers have none: so hybrid models mark those that are no attention."""
    counts = hparams.numbers(key)
    if 0 in counts and any(counts):
        raise hparams.unsupported(key, "heads in every layer")
    return hparams.per_layer(key, num_blocks, minimum=1, maximum=maximum)


def full_attention_rule(hparams: Metadata, shape: AttentionShape) -> AttentionRule:
    """A token sees all before it. UnsupportedError where the file's tokens see only a window."""
    refuse_window(hparams)
    return AttentionRule(attention_scale(hparams, shape))


def refuse_window(hparams: Metadata) -> None:
    """A window that holds the whole context is none: more tokens than that never run."""
    window = hparams.integer("attention.sliding_window", 0, minimum=0)
    if 0 < window < hparams.integer("context_length", minimum=1):
        raise hparams.unsupported("attention.sliding_window", "full attention in this architecture")


def attention_scale(hparams: Metadata, shape: AttentionShape) -> float:
    """What products of queries and keys are multiplied with; 0 is written for: not said."""
    return hparams.number("attention.scale", 0.0, minimum=0.0) or shape.key_length**-0.5


class QueryKeyNorms(NamedTuple):
    """Norms before the rotation."""

    queries: RmsNorm
    keys: RmsNorm


class GroupedQueryAttention:
    """`attn_q`, `attn_k`, `attn_v` and `attn_output` of one layer, each with a bias if the file has it.

    The first three may be one tensor, `attn_qkv`, with the rows of each after those of the other.
    """

    def __init__(
        self,
        weights: Weights,
        layer: int,
        shape: AttentionShape,
        rope: Rope,
        rule: AttentionRule,
        norms: QueryKeyNorms | None = None,
    ) -> None:
        self.cache_shape = shape.cache
        self._backend = weights.backend
        self._layer = layer
        self._shape = shape
        self._rope = rope
        self._rule = rule
        self._norms = norms
        self._q, self._k, self._v = _projections(weights, shape)
        self._output = Linear(weights, "attn_output", shape.hidden, shape.num_heads * shape.value_length)

    def __call__(self, x: Floats, batch: Batch, turns: Turns, cache: KVCache) -> Floats:
        """(T, H) -> (T, H); adds the batch's keys and values to the cache."""
        s = self._shape
        queries, keys, values = self._q(x), self._k(x), self._v(x)
        if self._norms is not None:
            queries, keys = self._norms.queries(queries), self._norms.keys(keys)
        queries = queries.reshape(-1, s.num_heads, s.key_length)
        keys = keys.reshape(-1, s.num_kv_heads, s.key_length)
        self._backend.rope(queries, *turns, self._rope.pairing)
        self._backend.rope(keys, *turns, self._rope.pairing)
        values = values.reshape(-1, s.num_kv_heads, s.value_length)
        cached_keys, cached_values = cache.keys(self._layer), cache.values(self._layer)
        self._backend.store_rows(cached_keys, batch.context, keys)
        self._backend.store_rows(cached_values, batch.context, values)
        mixed = self._backend.attention(queries, cached_keys, cached_values, batch.context, self._rule)
        return self._output(mixed.reshape(len(x), -1))


def _projections(weights: Weights, s: AttentionShape) -> list[Linear]:
    """Of queries, keys and values."""
    sizes = {
        "attn_q": s.num_heads * s.key_length,
        "attn_k": s.num_kv_heads * s.key_length,
        "attn_v": s.num_kv_heads * s.value_length,
    }
    if not weights.has("attn_qkv.weight"):
        return [Linear(weights, name, num_rows, s.hidden) for name, num_rows in sizes.items()]
    ends = np.cumsum(list(sizes.values())).tolist()
    return [
        Linear(weights, "attn_qkv", ends[-1], s.hidden, rows=slice(first, last))
        for first, last in zip([0, *ends], ends, strict=False)
    ]
