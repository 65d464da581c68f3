"""The tiny models with something changed: in the file, or in what was read of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from random_blocks import random_weight
from tiny_models import TINY, TinyModel, write_model

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kernels import Weight
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.models.registry import family_of
from ktdesk_engine.quants.formats import WeightType, dequantize

Tensors = dict[str, Any]
"""By name. Arrays of floats, shaped as numpy has them; a Weight is rows of its type; bytes alone are rows of Q8_0."""

TYPES = list(WeightType)

VALUE_TYPES = {
    bool: GGUFValueType.BOOL,
    int: GGUFValueType.UINT32,
    float: GGUFValueType.FLOAT32,
    str: GGUFValueType.STRING,
}


def write_variant(
    model: str | TinyModel,
    path: Path,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    change: Callable[[Tensors], None] = lambda tensors: None,
) -> Path:
    """Keys are written without the architecture's name; None removes one. `change` edits the tensors in place."""
    name = model if isinstance(model, str) else model.arch
    shape = TINY[model] if isinstance(model, str) else model

    def edit(writer: GGUFWriter) -> None:
        for key, value in metadata.items():
            _set_key(writer, f"{shape.arch}.{key}", value)
        tensors = {name: info.tensor for name, info in writer.tensors[0].items()}
        change(tensors)
        writer.tensors[0].clear()
        for tensor_name, values in tensors.items():
            _add_tensor(writer, tensor_name, values)

    write_model(shape, path, name, seed=sum(name.encode()), edit=edit)
    return path


def _add_tensor(writer: GGUFWriter, name: str, values: Any) -> None:
    if isinstance(values, np.ndarray) and values.dtype == np.uint8:
        values = Weight(WeightType.Q8_0, values)
    if isinstance(values, Weight):
        writer.add_tensor(name, np.ascontiguousarray(values.blocks), raw_dtype=GGMLQuantizationType(values.type))
    else:
        writer.add_tensor(name, np.ascontiguousarray(values))


def _set_key(writer: GGUFWriter, key: str, value: Any) -> None:
    writer.kv_data[0].pop(key, None)
    if isinstance(value, list):
        writer.add_array(key, value)
    elif value is not None:
        writer.add_key_value(key, value, VALUE_TYPES[type(value)])


def in_mixed_types(start: int) -> Callable[[Tensors], None]:
    """Random blocks of every type in turn, from the type with the number `start` on, in place of the matrices."""
    return in_types(lambda index: TYPES[(start + index) % len(TYPES)])


def in_types(type_of: Callable[[int], WeightType]) -> Callable[[Tensors], None]:
    """Random blocks in place of the matrices, which are counted; their values as large as those of the matrix."""

    def change(tensors: Tensors) -> None:
        rng = np.random.default_rng(3)
        matrices = [name for name, values in tensors.items() if values.ndim > 1]
        for index, name in enumerate(matrices):
            tensors[name] = random_weight(rng, type_of(index), tensors[name].shape, float(tensors[name].std()))

    return change


def dequantized(change: Callable[[Tensors], None]) -> Callable[[Tensors], None]:
    """The change, in float32: the same values."""

    def change_and_unpack(tensors: Tensors) -> None:
        change(tensors)
        for name, values in tensors.items():
            if isinstance(values, Weight):
                tensors[name] = dequantize(values.blocks, values.type)

    return change_and_unpack


def load_with(path: Path, metadata: Mapping[str, Any]) -> Decoder:
    """The model as if its file had other values for some keys, which are written without the architecture's name."""
    file = GGUFFile.open(path)
    changed = {f"{file.architecture}.{key}": value for key, value in metadata.items()}
    kept = {key: value for key, value in file.metadata.items() if key not in changed}
    file.metadata = MappingProxyType(kept | {key: value for key, value in changed.items() if value is not None})
    return family_of(file)(file, CpuBackend(kernels.worker_pool(2)))
