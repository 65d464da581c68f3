"""What each layer of a model keeps of past tokens: the exact need, by the layer's kind.

grouped-query  keys and values of its heads, with the lengths that the file names
latent         one latent and its turned part for all heads (multi-head latent attention)
sliding        as grouped-query, but only of the last `window` tokens
recurrent      a state whose size does not depend on the context
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ktdesk_engine.config import CacheType
from ktdesk_engine.gguf.hparams import Metadata
from ktdesk_engine.kv_cache import WEIGHT_TYPES, LayerCacheShape
from ktdesk_engine.quants.formats import BLOCKS

Kind = Literal["grouped-query", "latent", "sliding", "recurrent"]

FLOAT_BYTES = 4
DEFAULT_PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "llama4": 4, "exaone4": 4}
"""Of layers, the last sees all: what a file of the architecture means that has a window and no pattern."""
DEFAULT_INTERVALS = {"qwen3next": 4, "qwen35moe": 4, "qwen35": 4}
"""Every n-th layer is attention: what a file means that has recurrent layers and does not say which."""


@dataclass(frozen=True)
class LayerCache:
    kind: Kind
    num_heads: int = 0
    row_lengths: tuple[int, ...] = ()
    """Elements that are kept for each head: of key and value, or of the latent with its turned part."""
    value_length: int = 0
    window: int = 0
    state_bytes: int = 0
    """Of a sequence, whatever its length."""

    def num_bytes(self, context: int, cache_type: CacheType) -> int:
        """The need of one sequence of so many tokens."""
        num_tokens = min(context, self.window) if self.window else context
        block = BLOCKS[WEIGHT_TYPES[cache_type]]
        row_bytes = sum(-(-length // block.values) * block.bytes for length in self.row_lengths)
        return num_tokens * self.num_heads * row_bytes + self.state_bytes

    @property
    def shape(self) -> LayerCacheShape | None:
        """As the engine's cache has it; None for what it does not keep."""
        if self.kind == "recurrent":
            return None
        if self.kind == "latent":
            return LayerCacheShape(1, self.row_lengths[0], self.value_length, values_in_keys=True)
        return LayerCacheShape(self.num_heads, self.row_lengths[0], self.row_lengths[1])


def needed_bytes(layers: Sequence[LayerCache], context: int, cache_type: CacheType) -> int:
    return sum(layer.num_bytes(context, cache_type) for layer in layers)


def grouped_query(num_heads: int, key_length: int, value_length: int, window: int = 0) -> LayerCache:
    kind: Kind = "sliding" if window else "grouped-query"
    return LayerCache(kind, num_heads, (key_length, value_length), value_length, window)


def latent(latent_length: int, turning_length: int) -> LayerCache:
    return LayerCache("latent", 1, (latent_length + turning_length,), latent_length)


def recurrent(conv_kernel: int, conv_channels: int, state_elements: int) -> LayerCache:
    """Float32: the last inputs of the convolution, and the state."""
    return LayerCache("recurrent", state_bytes=FLOAT_BYTES * ((conv_kernel - 1) * conv_channels + state_elements))


def read_layers(hparams: Metadata, architecture: str, num_layers: int, num_blocks: int) -> tuple[LayerCache, ...]:
    """Of each layer of a file. num_blocks: as the file counts, with those for the token after the next."""
    windows = _windows(hparams, architecture, num_layers, num_blocks)
    is_recurrent = _recurrent_layers(hparams, architecture, num_layers, num_blocks)
    heads = _kv_heads(hparams, num_blocks)
    return tuple(
        _recurrent(hparams) if is_recurrent[layer] else _attention(hparams, heads[layer], windows[layer])
        for layer in range(num_layers)
    )


def _kv_heads(hparams: Metadata, num_blocks: int) -> tuple[int, ...]:
    """Old files without the key have a key/value head for each head."""
    key = "attention.head_count_kv" if hparams.has("attention.head_count_kv") else "attention.head_count"
    return hparams.per_layer(key, num_blocks, minimum=0)


def _attention(hparams: Metadata, num_heads: int, window: int) -> LayerCache:
    """Of a latent, or by heads: explicit head sizes count, only without them are they the width divided by the heads.
    Layers with a window may have sizes of their own.
    """
    rank = hparams.integer("attention.kv_lora_rank", 0, minimum=0)
    if rank:
        return latent(rank, hparams.integer("rope.dimension_count", 0, minimum=0))
    heads = max(hparams.per_layer("attention.head_count", hparams.integer("block_count", minimum=1), minimum=0))
    size = hparams.integer("embedding_length", minimum=1) // max(heads, 1)
    lengths = [
        hparams.integer(f"attention.{name}_length_swa", 0, minimum=0) if window else 0 for name in ("key", "value")
    ]
    key, value = (
        length or hparams.integer(f"attention.{name}_length", size, minimum=1)
        for name, length in zip(("key", "value"), lengths, strict=True)
    )
    return grouped_query(num_heads, key, value, window)


def _windows(hparams: Metadata, architecture: str, num_layers: int, num_blocks: int) -> tuple[int, ...]:
    """0 for a layer that sees all."""
    window = hparams.integer("attention.sliding_window", 0, minimum=0)
    key = "attention.sliding_window_pattern"
    if not window or window >= hparams.integer("context_length", 2**62, minimum=1):
        return (0,) * num_layers
    if hparams.is_array(key):
        return tuple(window if flag else 0 for flag in hparams.numbers(key)[:num_layers])
    default = DEFAULT_PERIODS.get(architecture)
    if default is None and not hparams.has(key):
        return (0,) * num_layers  # whether it is used is not known: the larger need
    period = hparams.integer(key, default or 1, minimum=0)
    return tuple(0 if period and layer % period == period - 1 else window for layer in range(num_layers))


def _recurrent_layers(hparams: Metadata, architecture: str, num_layers: int, num_blocks: int) -> tuple[bool, ...]:
    """Where the file has states at all: it says which layers, or how often attention comes, or it has no heads."""
    if not hparams.has("ssm.conv_kernel"):
        return (False,) * num_layers
    if hparams.is_array("attention.recurrent_layers"):
        return tuple(bool(flag) for flag in hparams.numbers("attention.recurrent_layers")[:num_layers])
    heads = _kv_heads(hparams, num_blocks)[:num_layers]
    if 0 in heads:
        return tuple(not count for count in heads)
    interval = hparams.integer("full_attention_interval", DEFAULT_INTERVALS.get(architecture, 1), minimum=1)
    return tuple((layer + 1) % interval != 0 for layer in range(num_layers))


def _recurrent(hparams: Metadata) -> LayerCache:
    """Mamba-2 and gated delta nets count alike: inner size, and for each group a B and a C (or q and k). Kimi's delta
    attention has square states, one a head, and a convolution each for q, k and v."""
    kernel = hparams.integer("ssm.conv_kernel", minimum=1)
    if hparams.has("kda.head_dim"):
        size = hparams.integer("kda.head_dim", minimum=1)
        heads = max(hparams.per_layer("attention.head_count", hparams.integer("block_count", minimum=1), minimum=0))
        return recurrent(kernel, 3 * heads * size, heads * size * size)
    inner = hparams.integer("ssm.inner_size", minimum=1)
    state = hparams.integer("ssm.state_size", minimum=1)
    groups = hparams.integer("ssm.group_count", 0, minimum=0)
    return recurrent(kernel, inner + 2 * groups * state, state * inner)
