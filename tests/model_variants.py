"""The tiny models with something changed: in the file, or in what was read of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from tiny_models import TINY, TinyModel, write_model

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.models.base import Decoder
from ktdesk_engine.models.registry import family_of

Tensors = dict[str, np.ndarray]
"""By name; shapes as numpy has them; bytes (uint8) are rows of Q8_0."""

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
            raw_type = GGMLQuantizationType.Q8_0 if values.dtype == np.uint8 else None
            writer.add_tensor(tensor_name, np.ascontiguousarray(values), raw_dtype=raw_type)

    write_model(shape, path, name, seed=sum(name.encode()), edit=edit)
    return path


def _set_key(writer: GGUFWriter, key: str, value: Any) -> None:
    writer.kv_data[0].pop(key, None)
    if isinstance(value, list):
        writer.add_array(key, value)
    elif value is not None:
        writer.add_key_value(key, value, VALUE_TYPES[type(value)])


def load_with(path: Path, metadata: Mapping[str, Any]) -> Decoder:
    """The model as if its file had other values for some keys, which are written without the architecture's name."""
    file = GGUFFile.open(path)
    changed = {f"{file.architecture}.{key}": value for key, value in metadata.items()}
    kept = {key: value for key, value in file.metadata.items() if key not in changed}
    file.metadata = MappingProxyType(kept | {key: value for key, value in changed.items() if value is not None})
    return family_of(file)(file, CpuBackend(kernels.worker_pool(2)))
