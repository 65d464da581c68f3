"""Loading: the weights of a model go from the file into panels in memory, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ktdesk_engine import kernels
from ktdesk_engine.errors import ResourceError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kernels import Weight, WorkerPool


class Packable(Protocol):
    """A layer with weights that may be packed."""

    def packable_weights(self) -> Sequence[Weight]:
        """As they lie in the file."""

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        """Replaces each of its weights by packed(weight)."""


@dataclass(frozen=True)
class LoadProgress:
    """How far loading is."""

    done_bytes: int
    total_bytes: int


def packed_model_bytes(packables: Sequence[Packable]) -> int:
    """Memory that the panels will take."""
    return sum(kernels.packed_bytes(weight) for layer in packables for weight in layer.packable_weights())


def check_memory(needed_bytes: int, available_bytes: int) -> None:
    """ResourceError where the panels do not fit."""
    if needed_bytes > available_bytes:
        raise ResourceError(
            f"the model needs {needed_bytes / 2**30:.1f} GiB in memory, but {available_bytes / 2**30:.1f} GiB are "
            "available: close something, or compute in float32, which leaves the weights in the file and is slow"
        )


def pack_model(
    packables: Sequence[Packable],
    pool: WorkerPool,
    file: GGUFFile,
    progress: Callable[[LoadProgress], None] = lambda progress: None,
) -> None:
    """Packs what has panels. Pages of the file are dropped as they were read, so memory holds each weight once.

    progress may raise, to cancel.
    """
    total_bytes = sum(weight.blocks.nbytes for layer in packables for weight in layer.packable_weights())
    done_bytes = 0

    def packed(weight: Weight) -> Weight:
        nonlocal done_bytes
        done_bytes += weight.blocks.nbytes
        result = kernels.pack(pool, weight, file.drop) if kernels.has_panels(weight) else weight
        progress(LoadProgress(done_bytes, total_bytes))
        return result

    for layer in packables:
        layer.pack(packed)
