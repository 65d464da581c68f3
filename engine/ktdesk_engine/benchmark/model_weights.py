"""How many bytes and weights of a model a token touches, by what the file says and what loading made of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ktdesk_engine.experts.moe import MoeLayer
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.gguf.tensors import TensorInfo
from ktdesk_engine.kernels import Weight
from ktdesk_engine.layers.embedding import Embedding
from ktdesk_engine.models.base import Decoder, num_layers
from ktdesk_engine.packing import Packable
from ktdesk_engine.quants.formats import row_bytes

Part = Literal["dense", "experts", "head", "embedding"]


class Amount(NamedTuple):
    """Bytes or weights, by how they are used."""

    dense: float
    """By every token."""
    experts: float
    """All routed experts; a token uses K of E."""
    head: float
    """Once for each token whose logits are asked for."""
    embedding_row: float
    """One a token."""


@dataclass(frozen=True)
class ModelWeights:
    """What a token touches."""

    file_bytes: Amount
    memory_bytes: Amount
    """As it is computed with: in panels, where the weights were packed."""
    num_weights: Amount
    """Only what is multiplied: matrices, without the embedding's rows."""
    num_experts: int
    """0: a dense model."""
    num_used: int
    peak: str
    """What most of the weights are multiplied as: int8 where they are in panels, else float32."""

    @property
    def expert_share(self) -> float:
        """Of the experts that a token uses."""
        return self.num_used / self.num_experts if self.num_experts else 0.0

    def of_token(self, amount: Amount) -> float:
        """One token, with its logits."""
        return amount.dense + self.expert_share * amount.experts + amount.head + amount.embedding_row

    def operations(self, num_tokens: int, num_logits: int) -> float:
        """Two for each weight that a token is multiplied with. What attention does on the cache is not counted."""
        per_token = self.num_weights.dense + self.expert_share * self.num_weights.experts
        return 2 * (num_tokens * per_token + num_logits * self.num_weights.head)


def model_weights(file: GGUFFile, model: Decoder) -> ModelWeights:
    """model: loaded from the file."""
    hparams = file.hparams()
    bytes_: Counter[Part] = Counter()
    weights: Counter[Part] = Counter()
    tensors = [tensor for tensor in file.tensors.values() if _layer(tensor.name) < num_layers(hparams)]
    is_tied = "output.weight" not in file.tensors
    for tensor in tensors:
        for part in _parts(tensor, is_tied):
            bytes_[part] += tensor.num_bytes
            is_matrix = len(tensor.shape) > 1 and tensor.name.endswith(".weight")
            weights[part] += tensor.num_values if is_matrix else 0
    file_bytes = _amount(bytes_, model.vocab_size)
    bytes_.update(_growth(model))
    num_packed = sum(_num_values(weight) for _, weight in _weights(model) if weight.packed)
    return ModelWeights(
        file_bytes=file_bytes,
        memory_bytes=_amount(bytes_, model.vocab_size),
        num_weights=_amount(weights, model.vocab_size)._replace(embedding_row=0),
        num_experts=hparams.integer("expert_count", 0, minimum=0),
        num_used=hparams.integer("expert_used_count", 0, minimum=0),
        peak="int8" if 2 * num_packed > sum(_num_values(weight) for _, weight in _weights(model)) else "float32",
    )


def _layer(name: str) -> int:
    """-1 for what belongs to no layer."""
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found.group(1)) if found else -1


def _parts(tensor: TensorInfo, is_tied: bool) -> tuple[Part, ...]:
    """A tied embedding is the head too."""
    if tensor.name == "token_embd.weight":
        return ("embedding", "head") if is_tied else ("embedding",)
    if tensor.name.startswith("output."):
        return ("head",)
    return ("experts",) if "_exps." in tensor.name else ("dense",)


def _amount(counts: Counter[Part], vocab_size: int) -> Amount:
    return Amount(counts["dense"], counts["experts"], counts["head"], counts["embedding"] / vocab_size)


def _growth(model: Decoder) -> Counter[Part]:
    """Bytes that packing added to each part."""
    growth: Counter[Part] = Counter()
    for layer, weight in _weights(model):
        part: Part = "experts" if isinstance(layer, MoeLayer) else "head" if isinstance(layer, Embedding) else "dense"
        bytes_in_file = _num_values(weight) // weight.row_length * row_bytes(weight.type, weight.row_length)
        growth[part] += weight.blocks.nbytes - bytes_in_file
    return growth


def _weights(model: Decoder) -> list[tuple[Packable, Weight]]:
    return [(layer, weight) for layer in model.packables for weight in layer.packable_weights()]


def _num_values(weight: Weight) -> int:
    num_matrices = weight.blocks.shape[0] if weight.blocks.ndim == 3 else 1
    return num_matrices * weight.num_rows * weight.row_length
