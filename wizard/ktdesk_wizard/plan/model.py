"""A model as the planner sees it: its tensors, what its layers keep, how many experts a token uses. No weights."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ktdesk_engine import kernels
from ktdesk_engine.errors import ModelFileError, UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile, TensorInfo
from ktdesk_engine.kernels.large_arrays import HUGE_PAGE_BYTES
from ktdesk_engine.models.registry import families
from ktdesk_engine.quants.formats import WeightType
from ktdesk_wizard.plan.cache import LayerCache, read_layers
from ktdesk_wizard.tensor_classes import tensor_class

FLOAT_BYTES = 4
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
UNPACKED_MATRIX = ".attn_kv_b."
"""Of old files; loading divides it and keeps float32."""


@dataclass(frozen=True)
class PlannedTensor:
    name: str
    shape: tuple[int, ...]
    """The length of a row first."""
    type_name: str
    num_bytes: int
    """In the file."""
    weight_type: WeightType | None
    """None: the engine cannot compute with it, or the bytes are an estimate."""

    @property
    def tensor_class(self) -> str:
        return tensor_class(self.name)

    @property
    def is_expert(self) -> bool:
        return "_exps." in self.name

    @property
    def num_values(self) -> int:
        return math.prod(self.shape)

    @property
    def layer(self) -> int:
        """-1 for what belongs to no layer."""
        found = re.match(r"blk\.(\d+)\.", self.name)
        return int(found.group(1)) if found else -1

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1 and self.name.endswith(".weight")

    @property
    def has_panels(self) -> bool:
        return not self.is_unpacked and self.weight_type is not None and self._panels_bytes() > 0

    @property
    def is_unpacked(self) -> bool:
        """To float32, when it is loaded: vectors and biases."""
        return not self.is_matrix or UNPACKED_MATRIX in self.name

    def memory_bytes(self, is_packed: bool) -> int:
        """In panels where there are any for the type, in float32 where it is unpacked, else as in the file."""
        if self.is_unpacked:
            return FLOAT_BYTES * self.num_values
        return self._panels_bytes() if is_packed and self.has_panels else self.num_bytes

    def rounding_bytes(self) -> int:
        """What huge pages add: panels that fill one or more begin on a page of their own."""
        num_bytes = self._panels_bytes() if self.has_panels else 0
        return 0 if num_bytes < HUGE_PAGE_BYTES else -num_bytes % HUGE_PAGE_BYTES

    def _panels_bytes(self) -> int:
        assert self.weight_type is not None
        num_matrices = math.prod(self.shape[2:])
        return kernels.panels_bytes(self.weight_type, num_matrices, self.shape[1], self.shape[0])


@dataclass(frozen=True)
class PlannedModel:
    name: str
    source: str
    """A file, or the catalogue."""
    architecture: str
    quantization: str
    """The type that most bytes have, or the catalogue's name for a mixture."""
    context_length: int
    """Tokens that it was trained for."""
    hidden: int
    vocab_size: int
    num_experts: int
    """0: dense."""
    num_used: int
    expert_width: int
    num_heads: int
    layers: tuple[LayerCache, ...]
    tensors: tuple[PlannedTensor, ...]
    """Without those of blocks for the token after the next, which the engine leaves out."""
    left_out_bytes: int
    is_estimate: bool
    """Sizes are from bits per weight, not from a file."""

    @property
    def file_bytes(self) -> int:
        return sum(tensor.num_bytes for tensor in self.tensors) + self.left_out_bytes

    @property
    def is_tied(self) -> bool:
        return all(tensor.name != HEAD for tensor in self.tensors)

    @property
    def num_values(self) -> int:
        return sum(tensor.num_values for tensor in self.tensors)

    @property
    def shape(self) -> str:
        """The same for all files of a model, whatever their quantization, and for what the catalogue says of it."""
        counts = (self.hidden, self.num_experts, self.num_used, self.expert_width, self.num_heads, len(self.layers))
        return " ".join(map(str, (self.architecture, *counts)))

    @property
    def fingerprint(self) -> str:
        """The same for files of the same tensors, wherever they lie."""
        index = [self.architecture, *(f"{t.name} {t.shape} {t.type_name}" for t in self.tensors)]
        return hashlib.sha256("\n".join(index).encode()).hexdigest()[:32]


def model_of_file(path: Path) -> PlannedModel:
    """From the header alone: the weights are not read. UnsupportedError where an architecture that is not known writes
    its sizes in a way of its own."""
    with GGUFFile.open(path) as file:
        try:
            return _model_of(file, path)
        except ModelFileError as error:
            if file.architecture in families():
                raise
            raise unknown_architecture(file.architecture, path) from error


def unknown_architecture(name: str, path: Path | str) -> UnsupportedError:
    known = ", ".join(families())
    return UnsupportedError(f"{path}: the architecture {name!r:.80} is not one that this engine knows: {known}")


def _model_of(file: GGUFFile, path: Path) -> PlannedModel:
    hparams = file.hparams()
    num_blocks = hparams.integer("block_count", minimum=1, maximum=512)
    num_layers = num_blocks - hparams.integer("nextn_predict_layers", 0, minimum=0, maximum=num_blocks - 1)
    tensors = [_planned(tensor) for tensor in file.tensors.values()]
    used = tuple(tensor for tensor in tensors if tensor.layer < num_layers)
    return PlannedModel(
        name=file.keys.string("general.name", path.stem),
        source=str(path),
        architecture=file.architecture,
        quantization=most_common_type(used),
        context_length=hparams.integer("context_length", minimum=1),
        hidden=hparams.integer("embedding_length", minimum=1),
        vocab_size=_vocab_size(used),
        num_experts=hparams.integer("expert_count", 0, minimum=0),
        num_used=hparams.integer("expert_used_count", 0, minimum=0),
        expert_width=hparams.integer("expert_feed_forward_length", _expert_width(used), minimum=0),
        num_heads=max(hparams.per_layer("attention.head_count", num_blocks, minimum=0)),
        layers=read_layers(hparams, file.architecture, num_layers, num_blocks),
        tensors=used,
        left_out_bytes=sum(tensor.num_bytes for tensor in tensors if tensor.layer >= num_layers),
        is_estimate=False,
    )


def _planned(tensor: TensorInfo) -> PlannedTensor:
    weight_type = tensor.type if tensor.is_readable else None
    return PlannedTensor(tensor.name, tensor.shape, tensor.type_name, tensor.num_bytes, weight_type)


def _vocab_size(tensors: Iterable[PlannedTensor]) -> int:
    return next((tensor.shape[-1] for tensor in tensors if tensor.name == EMBEDDING), 0)


def _expert_width(tensors: Iterable[PlannedTensor]) -> int:
    """Of files that have one key for the width of experts and of dense layers."""
    return next((tensor.shape[1] for tensor in tensors if ".ffn_up_exps." in tensor.name and len(tensor.shape) > 2), 0)


def most_common_type(tensors: Iterable[PlannedTensor]) -> str:
    """By bytes."""
    totals: dict[str, int] = {}
    for tensor in tensors:
        totals[tensor.type_name] = totals.get(tensor.type_name, 0) + tensor.num_bytes
    return max(totals, key=lambda name: totals[name], default="none")
