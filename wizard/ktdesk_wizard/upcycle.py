"""A dense model becomes a mixture of experts that says the same.

Each expert is a copy of the dense feed-forward network, the router is random, and the weights of the experts
that a token goes to sum to one: whichever they are, their weighted sum is what the dense network computes.
Weights are copied as they lie in the file, so nothing is lost to quantization.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from ktdesk_engine.gguf.file import GGUFFile, TensorInfo
from ktdesk_wizard.errors import SourceError
from ktdesk_wizard.report import Report

ARCHITECTURE = "llama"
"""In it the weights of the chosen experts always sum to one."""
_DENSE_FFN = re.compile(r"(blk\.\d+\.ffn_(?:gate|up|down))\.weight")
_FFN_NORM = re.compile(r"(blk\.\d+)\.ffn_norm\.weight")
_NOT_COPIED = ("general.architecture", "general.name", "general.alignment", "general.license")
"""What the writer adds by itself, and what is given here."""

_ARRAY_TYPES = {
    "uint8": GGUFValueType.UINT8,
    "int8": GGUFValueType.INT8,
    "uint16": GGUFValueType.UINT16,
    "int16": GGUFValueType.INT16,
    "uint32": GGUFValueType.UINT32,
    "int32": GGUFValueType.INT32,
    "uint64": GGUFValueType.UINT64,
    "int64": GGUFValueType.INT64,
    "float32": GGUFValueType.FLOAT32,
    "float64": GGUFValueType.FLOAT64,
    "bool": GGUFValueType.BOOL,
}


@dataclass(frozen=True)
class Recipe:
    title: str
    licence: str
    num_experts: int
    num_used: int
    seed: int
    """Of the router."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Keys that say how to sample, over those of the source."""


class OutTensor(NamedTuple):
    """A tensor to write: `source` once, or once for each expert; or a router where there is no source."""

    name: str
    shape: tuple[int, ...]
    """Of the bytes: a row last."""
    type_id: int
    source: str | None
    num_copies: int | None = None


def upcycle(source: Path, target: Path, recipe: Recipe, report: Report) -> None:
    """Writes `target`, one tensor at a time. The source is a dense model of the architecture llama."""
    with GGUFFile.open(source) as file:
        _check_dense_llama(file)
        tensors = list(_plan(file, recipe.num_experts))
        writer = GGUFWriter(target, ARCHITECTURE)
        try:
            _write_metadata(writer, file, recipe)
            for tensor in tensors:
                num_bytes = int(np.prod(tensor.shape))
                type_ = GGMLQuantizationType(tensor.type_id)
                writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.uint8), num_bytes, type_)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            _write_data(writer, file, tensors, recipe, report)
        finally:
            writer.close()


def _check_dense_llama(file: GGUFFile) -> None:
    if file.architecture != ARCHITECTURE:
        raise SourceError(f"{file.path}: a model of the architecture {file.architecture!r}, not {ARCHITECTURE!r}")
    if file.hparams().integer("expert_count", 0):
        raise SourceError(f"{file.path}: a mixture of experts already; give the dense model")


def _plan(file: GGUFFile, num_experts: int) -> Iterator[OutTensor]:
    for tensor in file.tensors.values():
        shape = file.data(tensor.name).shape
        if match := _DENSE_FFN.fullmatch(tensor.name):
            name = f"{match[1]}_exps.weight"
            yield OutTensor(name, (num_experts, *shape), tensor.type_id, tensor.name, num_experts)
        else:
            yield OutTensor(tensor.name, shape, tensor.type_id, tensor.name)
        if match := _FFN_NORM.fullmatch(tensor.name):
            yield _router(match[1], tensor, num_experts)


def _router(block: str, norm: TensorInfo, num_experts: int) -> OutTensor:
    row_bytes = norm.num_values * np.dtype(np.float32).itemsize
    return OutTensor(f"{block}.ffn_gate_inp.weight", (num_experts, row_bytes), GGMLQuantizationType.F32, None)


def _write_data(writer: GGUFWriter, file: GGUFFile, tensors: list[OutTensor], recipe: Recipe, report: Report) -> None:
    rng = np.random.default_rng(recipe.seed)
    total_bytes = sum(int(np.prod(tensor.shape)) for tensor in tensors)
    done_bytes = 0
    for tensor in tensors:
        data = _router_values(tensor.shape, rng) if tensor.source is None else file.data(tensor.source)
        if tensor.num_copies is not None:
            data = np.broadcast_to(data, tensor.shape)
        writer.write_tensor_data(np.ascontiguousarray(data))
        done_bytes += data.nbytes
        report.advance(done_bytes, total_bytes)


def _router_values(byte_shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.uint8]:
    """(E, H) of the usual size of weights, as bytes."""
    num_experts, hidden = byte_shape[0], byte_shape[1] // np.dtype(np.float32).itemsize
    values = rng.standard_normal((num_experts, hidden)) * hidden**-0.5
    return values.astype("<f4").view(np.uint8)


def _write_metadata(writer: GGUFWriter, file: GGUFFile, recipe: Recipe) -> None:
    for key, value in {**file.metadata, **recipe.sampling}.items():
        if key not in _NOT_COPIED and not key.startswith("split."):
            _add_value(writer, key, value)
    writer.add_name(recipe.title)
    writer.add_license(recipe.licence)
    writer.add_description(
        f"Made by ktdesk from {file.keys.string('general.name', source_name(file.path))}: "
        f"{recipe.num_experts} experts, each a copy of the dense feed-forward network"
    )
    writer.add_expert_count(recipe.num_experts)
    writer.add_expert_used_count(recipe.num_used)


def source_name(path: Path) -> str:
    """What to call a model that does not say its name."""
    return path.stem


def _add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    """The reader forgets how wide an integer was stored: readers of GGUF take any width."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_key_value(key, value, _integer_type(value))
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif len(value):  # the writer knows no empty arrays
        is_numbers = isinstance(value, np.ndarray)
        sub_type = _ARRAY_TYPES[value.dtype.name] if is_numbers else GGUFValueType.STRING
        items = value.tolist() if is_numbers else list(value)
        writer.add_key_value(key, items, GGUFValueType.ARRAY, sub_type)


def _integer_type(value: int) -> GGUFValueType:
    if value < 0:
        return GGUFValueType.INT32 if value >= -(2**31) else GGUFValueType.INT64
    return GGUFValueType.UINT32 if value < 2**32 else GGUFValueType.UINT64
