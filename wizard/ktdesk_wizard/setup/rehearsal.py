"""Tries a plan without weights: what cannot load is found before it was fetched.

The model is made from its headers, as loading makes it: the architecture, all shapes, the tokenizer and the chat
template. Every kind of matrix is multiplied once with zeros. Then the memory that panels and cache will take is asked
for as the engine asks, and given back untouched: the system refuses here what it would refuse later.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ktdesk_engine import kernels
from ktdesk_engine.backends.cpu import CpuBackend
from ktdesk_engine.backends.cuda.availability import look, problem
from ktdesk_engine.chat.template import ChatTemplate
from ktdesk_engine.errors import AcceleratorError, ResourceError, UnsupportedError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kernels import Weight, WorkerPool
from ktdesk_engine.kv_cache import cache_bytes
from ktdesk_engine.machine import thread_places
from ktdesk_engine.models.registry import family_of
from ktdesk_engine.packing import packed_model_bytes
from ktdesk_engine.quants.formats import WeightType, row_bytes
from ktdesk_engine.tokenizer.tokenizer import Tokenizer
from ktdesk_wizard.setup.messages import Task

NUM_ROWS = kernels.PANEL_ROWS


@dataclass(frozen=True)
class Rehearsed:
    num_tensors: int
    num_kinds: int
    """Of matrices: type and length of a row."""
    panel_bytes: int
    cache_bytes: int


def rehearse(task: Task) -> Rehearsed:
    """EngineError or ConfigError for what loading would refuse too."""
    if task.accelerator == "cuda" and (why_not := problem(look())) is not None:
        raise AcceleratorError(f"accelerator cuda: {why_not}")
    places = thread_places(task.num_threads)
    pool = kernels.worker_pool(len(places), places=places)
    with GGUFFile.open(task.path) as file:
        model = family_of(file)(file, CpuBackend(pool))
        Tokenizer.from_gguf(file)
        ChatTemplate.from_gguf(file).close()
        panel_bytes = packed_model_bytes(model.packables) if task.compute != "float32" else 0
        kept_bytes = cache_bytes(model.cache_shapes, task.context, task.cache_type)
        kinds = sorted({kind for layer in model.packables for kind in _kinds(layer.packable_weights())})
        for weight_type, row_length in kinds:
            _multiply_zeros(pool, weight_type, row_length, packs=task.compute != "float32")
        _reserve(panel_bytes, "the weights")
        _reserve(kept_bytes, f"a cache of {task.context} tokens")
        return Rehearsed(len(file.tensors), len(kinds), panel_bytes, kept_bytes)


def _kinds(weights: object) -> Iterator[tuple[WeightType, int]]:
    assert isinstance(weights, (list, tuple))
    for weight in weights:
        yield weight.type, weight.row_length


def _multiply_zeros(pool: WorkerPool, weight_type: WeightType, row_length: int, *, packs: bool) -> None:
    """A panel of rows and a token: the kernels check type and length, and run once."""
    weight = Weight(weight_type, np.zeros((NUM_ROWS, row_bytes(weight_type, row_length)), np.uint8))
    if packs and kernels.has_panels(weight):
        weight = kernels.pack(pool, weight)
    out = kernels.linear(pool, weight, np.zeros((1, row_length), np.float32))
    if not np.isfinite(out).all():
        raise UnsupportedError(f"zeros of {weight_type.name} in rows of {row_length} give no finite number")


def _reserve(num_bytes: int, what: str) -> None:
    """ResourceError where the system does not even promise so much."""
    if not num_bytes:
        return
    try:
        mmap.mmap(-1, num_bytes).close()
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        raise ResourceError(
            f"{num_bytes / 2**30:.1f} GiB for {what} are refused by the system ({error}): look at `ulimit -v` and "
            "vm.overcommit_memory, or ask for a smaller context"
        ) from None
