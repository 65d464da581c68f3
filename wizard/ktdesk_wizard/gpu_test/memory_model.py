"""Models of random weights with layers of real shape, in memory: no disk, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from ktdesk_engine.benchmark.layer import LayerShape
from ktdesk_engine.benchmark.random_weights import fitting_type, random_weight
from ktdesk_engine.kernels import Floats, Weight
from ktdesk_engine.quants.formats import BLOCKS, WeightType

MEAN_CODE = 7.5
"""Of random codes of 4 bits."""
BYTES = 256
VOCABULARY = BYTES + 3
"""Single bytes, one pair of them, and two control tokens."""


class ModelShape(NamedTuple):
    """A mixture of experts with grouped-query attention, as Qwen3's."""

    vocab_size: int
    layers: int
    heads: int
    kv_heads: int
    head_length: int
    experts: LayerShape


class LatentShape(NamedTuple):
    """The attention of DeepSeek's."""

    rank: int = 64
    nope: int = 32
    turning: int = 32
    value: int = 32


@contextmanager
def model_in_memory(write: Callable[[GGUFWriter], None], architecture: str) -> Iterator[Path]:
    """A file that the kernel keeps in memory, for as long as this lasts; what is mapped of it stays."""
    number = os.memfd_create("ktdesk-model")
    try:
        path = Path(f"/proc/self/fd/{number}")
        writer = GGUFWriter(path, architecture)
        write(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield path
    finally:
        os.close(number)


class QwenModel:
    """Layers in a quantized type with norms, router and head; all layers have the same random experts."""

    architecture = "qwen3moe"

    def __init__(self, shape: ModelShape, weight_type: WeightType) -> None:
        self._shape = shape
        self._type = weight_type

    def __call__(self, writer: GGUFWriter) -> None:
        shape, experts = self._shape, self._shape.experts
        _write_common(writer, shape)
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_key_length(shape.head_length)
        writer.add_value_length(shape.head_length)
        writer.add_rope_dimension_count(shape.head_length)
        made = _Experts(experts, self._type)
        _add(writer, "token_embd.weight", self._type, shape.vocab_size, experts.H, seed=1)
        _add(writer, "output.weight", self._type, shape.vocab_size, experts.H, seed=2)
        _norm(writer, "output_norm", experts.H)
        for layer in range(shape.layers):
            block = f"blk.{layer}."
            self._attention(writer, block, seed=10 * layer)
            made.write(writer, block, seed=layer)

    def _attention(self, writer: GGUFWriter, block: str, seed: int) -> None:
        shape, hidden = self._shape, self._shape.experts.H
        query, key = shape.heads * shape.head_length, shape.kv_heads * shape.head_length
        for number, (name, rows, length) in enumerate(
            [("q", query, hidden), ("k", key, hidden), ("v", key, hidden), ("output", hidden, query)]
        ):
            _add(writer, f"{block}attn_{name}.weight", self._type, rows, length, seed=seed + number)
        for name in ("attn", "ffn"):
            _norm(writer, f"{block}{name}_norm", hidden)
        for name in ("attn_q", "attn_k"):
            _norm(writer, f"{block}{name}_norm", shape.head_length)


class DeepSeekModel:
    """The same with latent attention."""

    architecture = "deepseek2"

    def __init__(self, shape: ModelShape, weight_type: WeightType, latent: LatentShape | None = None) -> None:
        self._shape = shape
        self._type = weight_type
        self._latent = latent or LatentShape()

    def __call__(self, writer: GGUFWriter) -> None:
        shape, latent, experts = self._shape, self._latent, self._shape.experts
        _write_common(writer, shape)
        writer.add_head_count_kv(1)
        writer.add_key_length(latent.rank + latent.turning)
        writer.add_value_length(latent.rank)
        writer.add_key_length_mla(latent.nope + latent.turning)
        writer.add_value_length_mla(latent.value)
        writer.add_kv_lora_rank(latent.rank)
        writer.add_rope_dimension_count(latent.turning)
        made = _Experts(experts, self._type)
        _add(writer, "token_embd.weight", self._type, shape.vocab_size, experts.H, seed=1)
        _add(writer, "output.weight", self._type, shape.vocab_size, experts.H, seed=2)
        _norm(writer, "output_norm", experts.H)
        for layer in range(shape.layers):
            self._attention(writer, f"blk.{layer}.", seed=10 * layer)
            made.write(writer, f"blk.{layer}.", seed=layer)

    def _attention(self, writer: GGUFWriter, block: str, seed: int) -> None:
        latent, heads, hidden = self._latent, self._shape.heads, self._shape.experts.H
        sizes: list[tuple[str, tuple[int, ...]]] = [
            ("q", (heads * (latent.nope + latent.turning), hidden)),
            ("kv_a_mqa", (latent.rank + latent.turning, hidden)),
            ("k_b", (heads, latent.rank, latent.nope)),
            ("v_b", (heads, latent.value, latent.rank)),
            ("output", (hidden, heads * latent.value)),
        ]
        for number, (name, size) in enumerate(sizes):
            _add(writer, f"{block}attn_{name}.weight", WeightType.Q8_0, *size, seed=seed + number)
        for name, length in (("attn", hidden), ("ffn", hidden), ("attn_kv_a", latent.rank)):
            _norm(writer, f"{block}{name}_norm", length)


class _Experts:
    """Made once: it is their number that takes time."""

    def __init__(self, shape: LayerShape, weight_type: WeightType) -> None:
        self._shape = shape
        self._weights = [
            ("gate", _random(weight_type, shape.E, shape.I, shape.H, seed=3)),
            ("up", _random(weight_type, shape.E, shape.I, shape.H, seed=4)),
            ("down", _random(weight_type, shape.E, shape.H, shape.I, seed=5)),
        ]

    def write(self, writer: GGUFWriter, block: str, seed: int) -> None:
        router = np.random.default_rng(seed).standard_normal((self._shape.E, self._shape.H), np.float32)
        writer.add_tensor(f"{block}ffn_gate_inp.weight", router / np.float32(self._shape.H**0.5))
        for name, weight in self._weights:
            kind = GGMLQuantizationType(int(weight.type))
            writer.add_tensor(f"{block}ffn_{name}_exps.weight", weight.blocks, raw_dtype=kind)


def _write_common(writer: GGUFWriter, shape: ModelShape) -> None:
    """Sizes, and the least vocabulary."""
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.experts.H)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_feed_forward_length(shape.experts.I)
    writer.add_expert_count(shape.experts.E)
    writer.add_expert_used_count(shape.experts.K)
    writer.add_expert_feed_forward_length(shape.experts.I)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*_byte_letters(), "th", "<|bos|>", "<|eos|>"])
    writer.add_token_types([1] * (BYTES + 1) + [3, 3])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(VOCABULARY - 2)
    writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_vocab_size(VOCABULARY)


def _byte_letters() -> list[str]:
    """The characters that stand for bytes in a byte-level vocabulary, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _add(writer: GGUFWriter, name: str, weight_type: WeightType, *shape: int, seed: int) -> None:
    weight = _random(weight_type, *shape, seed=seed)
    writer.add_tensor(name, weight.blocks, raw_dtype=GGMLQuantizationType(int(weight.type)))


def _random(weight_type: WeightType, *shape: int, seed: int) -> Weight:
    """Values whose mean is about 0: else all tokens become alike, and choose the same experts."""
    weight = random_weight(fitting_type(weight_type, shape[-1]), *shape, seed=seed)
    if weight.type is WeightType.Q4_K:
        block = weight.blocks.reshape(-1, BLOCKS[weight.type].bytes)
        scales = block[:, :2].copy().view(np.float16)
        block[:, 2:4] = (scales * np.float16(MEAN_CODE)).view(np.uint8)
    return weight


def _norm(writer: GGUFWriter, name: str, length: int) -> None:
    values: Floats = 1 + 0.2 * np.random.default_rng(length).standard_normal(length, np.float32)
    writer.add_tensor(f"{name}.weight", values)
