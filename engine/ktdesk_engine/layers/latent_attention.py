"""Multi-head latent attention, absorbed: the cache keeps one latent a token, from which all heads read.

A head's key is [k_b^T latent | turned shared part], its value v_b latent. Instead of making them for every
cached token, the query goes into the latent's space once, and the mixed latent becomes a value once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ktdesk_engine.batch import Batch
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kernels import AttentionRule, Floats, Turns, Weight
from ktdesk_engine.kv_cache import KVCache, LayerCacheShape
from ktdesk_engine.layers.attention import MAX_HEAD_SIZE, heads_per_layer
from ktdesk_engine.layers.linear import Linear
from ktdesk_engine.layers.norms import RmsNorm
from ktdesk_engine.layers.rope import Rope
from ktdesk_engine.quants.formats import WeightType
from ktdesk_engine.weights import Weights


@dataclass(frozen=True)
class LatentShape:
    hidden: int
    num_heads: int
    latent_length: int
    still_length: int
    """Elements of a head's query and key without position ("nope"); they come first."""
    turning_length: int
    """Elements that rope turns; their key is the same for all heads."""
    value_length: int

    @property
    def query_length(self) -> int:
        return self.still_length + self.turning_length

    @property
    def cache(self) -> LayerCacheShape:
        return LayerCacheShape(
            num_kv_heads=1,
            key_length=self.latent_length + self.turning_length,
            value_length=self.latent_length,
            values_in_keys=True,
        )


def latent_shapes(hparams: Metadata, num_blocks: int) -> tuple[LatentShape, ...]:
    """Of each block that the file counts.

    Newer files describe the cache in `key_length` and the heads in `key_length_mla`; older ones, which have
    no such key, the heads in `key_length`.
    """
    hidden = hparams.integer("embedding_length", minimum=1)
    suffix = "_mla" if hparams.has("attention.key_length_mla") else ""
    query_length = hparams.integer(f"attention.key_length{suffix}", minimum=3, maximum=MAX_HEAD_SIZE)
    turning_length = hparams.integer("rope.dimension_count", minimum=2, maximum=query_length - 1)
    return tuple(
        LatentShape(
            hidden=hidden,
            num_heads=num_heads,
            latent_length=hparams.integer("attention.kv_lora_rank", minimum=1, maximum=MAX_HEAD_SIZE),
            still_length=query_length - turning_length,
            turning_length=turning_length,
            value_length=hparams.integer(f"attention.value_length{suffix}", minimum=1, maximum=MAX_HEAD_SIZE),
        )
        for num_heads in heads_per_layer(hparams, "attention.head_count", num_blocks, hidden)
    )


class LowRankQueries:
    """`attn_q_a`, a norm, `attn_q_b`."""

    def __init__(self, weights: Weights, shape: LatentShape, rank: int, epsilon: float) -> None:
        self._down = Linear(weights, "attn_q_a", rank, shape.hidden)
        self._norm = RmsNorm(weights, "attn_q_a_norm", rank, epsilon)
        self._up = Linear(weights, "attn_q_b", shape.num_heads * shape.query_length, rank)

    def __call__(self, x: Floats) -> Floats:
        """(T, H) -> (T, heads * query_length)."""
        return self._up(self._norm(self._down(x)))


class LatentAttention:
    """`attn_kv_a_mqa`, `attn_k_b`, `attn_v_b` (or both in `attn_kv_b`) and `attn_output` of one layer."""

    def __init__(
        self,
        weights: Weights,
        layer: int,
        shape: LatentShape,
        queries: Linear | LowRankQueries,
        rope: Rope,
        rule: AttentionRule,
        epsilon: float,
    ) -> None:
        self.cache_shape = shape.cache
        self._backend = weights.backend
        self._layer = layer
        self._shape = shape
        self._rope = rope
        self._rule = rule
        self._queries = queries
        self._down = Linear(weights, "attn_kv_a_mqa", shape.cache.key_length, shape.hidden)
        self._norm = RmsNorm(weights, "attn_kv_a_norm", shape.latent_length, epsilon)
        self._key_up, self._value_up = _up_projections(weights, shape)
        weights.packables.append(self)
        self._output = Linear(weights, "attn_output", shape.hidden, shape.num_heads * shape.value_length)

    def packable_weights(self) -> list[Weight]:
        return [self._key_up, self._value_up]

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        self._key_up, self._value_up = packed(self._key_up), packed(self._value_up)

    def __call__(self, x: Floats, batch: Batch, turns: Turns, cache: KVCache) -> Floats:
        """(T, H) -> (T, H); adds the batch's latents to the cache."""
        keys, values = cache.keys(self._layer), cache.values(self._layer)
        self._backend.store_rows(keys, batch.context, self._cached(x, turns))
        mixed = self._backend.attention(self._absorbed_queries(x, turns), keys, values, batch.context, self._rule)
        outputs = self._backend.linear_per_head(self._value_up, mixed)
        return self._output(outputs.reshape(len(x), -1))

    def _cached(self, x: Floats, turns: Turns) -> Floats:
        """What the cache keeps: the normed latent, then the turned part. (T, 1, latent + turning)."""
        kv = self._down(x)
        self._norm.in_place(kv[:, : self._shape.latent_length])
        self._backend.rope(kv[:, None, self._shape.latent_length :], *turns, self._rope.pairing)
        return kv[:, None]

    def _absorbed_queries(self, x: Floats, turns: Turns) -> Floats:
        """(T, heads, latent + turning): the still part in the latent's space, then the turned part."""
        queries = self._queries(x).reshape(len(x), self._shape.num_heads, self._shape.query_length)
        turning = queries[..., self._shape.still_length :]
        self._backend.rope(turning, *turns, self._rope.pairing)
        still = self._backend.linear_per_head(self._key_up, queries[..., : self._shape.still_length])
        return self._backend.join_heads(still, turning)


def _up_projections(weights: Weights, s: LatentShape) -> tuple[Weight, Weight]:
    """For each head: still query -> latent, (heads, latent, still), and latent -> value, (heads, value, latent)."""
    if not weights.has("attn_kv_b.weight"):
        key_up = weights.heads("attn_k_b.weight", s.num_heads, s.latent_length, s.still_length)
        return key_up, weights.heads("attn_v_b.weight", s.num_heads, s.value_length, s.latent_length)
    return _split_kv_b(weights, s)


def _split_kv_b(weights: Weights, s: LatentShape) -> tuple[Weight, Weight]:
    """Files before April 2025: for each head the rows latent -> key, then those latent -> value.

    The first are needed the other way round, which quantized rows cannot be: they become float32.
    """
    rows_per_head = s.still_length + s.value_length
    rows = weights.matrix("attn_kv_b.weight", s.num_heads * rows_per_head, s.latent_length)
    value_up = rows.blocks.reshape(s.num_heads, rows_per_head, -1)[:, s.still_length :]
    floats = weights.float_matrix("attn_kv_b.weight", s.num_heads * rows_per_head, s.latent_length)
    keys = floats.reshape(s.num_heads, rows_per_head, -1)[:, : s.still_length]
    key_up = np.ascontiguousarray(keys.transpose(0, 2, 1)).view(np.uint8)
    return Weight(WeightType.F32, key_up), Weight(rows.type, value_up)
