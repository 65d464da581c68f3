"""Other quantizations of a model, as far as they can be known without their files: by bits per weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ktdesk_wizard.errors import WishError
from ktdesk_wizard.plan.model import PlannedModel, PlannedTensor

BITS_PER_WEIGHT = {
    "BF16": 16.0,
    "F16": 16.0,
    "Q8_0": 8.5,
    "Q6_K": 6.57,
    "Q5_K_M": 5.7,
    "Q4_K_M": 4.84,
    "Q4_K_S": 4.6,
    "Q4_0": 4.5,
    "IQ4_XS": 4.3,
    "MXFP4": 4.25,
    "Q3_K_M": 3.9,
    "UD-Q2_K_XL": 2.99,
    "Q2_K": 2.9,
    "IQ1_S": 1.66,
}
"""Of whole files, as engines log them when they load one. The largest first."""


def checked_quantization(name: str) -> str:
    """WishError, with those that are known, for any other."""
    found = next((known for known in BITS_PER_WEIGHT if known.lower() == name.lower()), None)
    if found is None:
        raise WishError(f"the quantization {name!r} is not known; known are {', '.join(BITS_PER_WEIGHT)}")
    return found


def requantized(model: PlannedModel, quantization: str) -> PlannedModel:
    """The same model with so many bits per weight in every matrix that files quantize."""
    bits = BITS_PER_WEIGHT[quantization]
    tensors = tuple(_requantized(tensor, quantization, bits) for tensor in model.tensors)
    left_out = round(model.left_out_bytes * sum(t.num_bytes for t in tensors) / max(_bytes(model), 1))
    return replace(model, quantization=quantization, tensors=tensors, left_out_bytes=left_out, is_estimate=True)


class FileSize(Protocol):
    """Of a quantization whose file is known by its size alone."""

    @property
    def quantization(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...


def resized(model: PlannedModel, size: FileSize) -> PlannedModel:
    """The same model in another file: its matrices get what is left of the file's bytes for each of their weights."""
    quantized = [tensor for tensor in model.tensors if _is_quantized(tensor)]
    other_bytes = _bytes(model) - sum(tensor.num_bytes for tensor in quantized)
    left_out = round(model.left_out_bytes * size.num_bytes / max(model.file_bytes, 1))
    num_values = sum(tensor.num_values for tensor in quantized)
    bits = 8 * max(size.num_bytes - other_bytes - left_out, 0) / max(num_values, 1)
    tensors = tuple(_requantized(tensor, size.quantization, bits) for tensor in model.tensors)
    return replace(model, quantization=size.quantization, tensors=tensors, left_out_bytes=left_out, is_estimate=True)


def _bytes(model: PlannedModel) -> int:
    return sum(tensor.num_bytes for tensor in model.tensors)


def _requantized(tensor: PlannedTensor, quantization: str, bits: float) -> PlannedTensor:
    if not _is_quantized(tensor):
        return tensor
    return replace(tensor, type_name=quantization, num_bytes=round(tensor.num_values * bits / 8), weight_type=None)


def _is_quantized(tensor: PlannedTensor) -> bool:
    return tensor.is_matrix and tensor.tensor_class != "router"
