"""Loading: each weight of a model is read once, looked at, and packed in memory where it has panels.

A weight that is not a finite number is found here, before anything is computed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ktdesk_engine import kernels
from ktdesk_engine.errors import ResourceError
from ktdesk_engine.gguf.file import GGUFFile
from ktdesk_engine.kernels import BadBlockError, Blocks, Source, Weight, WorkerPool
from ktdesk_engine.load_progress import LoadMeter, LoadProgress, Stage
from ktdesk_engine.weight_damage import damaged_weight


class Packable(Protocol):
    """A layer with weights that may be packed."""

    def packable_weights(self) -> Sequence[Weight]:
        """As they lie in the file."""

    def pack(self, packed: Callable[[Weight], Weight]) -> None:
        """Replaces each of its weights by packed(weight)."""


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


def load_weights(
    packables: Sequence[Packable],
    tensor_names: Collection[str],
    pool: WorkerPool,
    file: GGUFFile,
    progress: Callable[[LoadProgress], None] = lambda progress: None,
    *,
    packs: bool = True,
) -> None:
    """Looks at all matrices among the tensors, and packs those of the packables that have panels (none unless `packs`).

    Pages of the file are dropped as they were read, so memory holds each weight once. progress may raise, to cancel.
    ModelFileError where a weight is no finite number.
    """
    packed = [w for layer in packables for w in layer.packable_weights() if packs and kernels.has_panels(w)]
    in_file = _others(file, tensor_names, packed)
    meter = LoadMeter(sum(weight.blocks.nbytes for weight in [*in_file, *packed]), progress)

    def source(stage: Stage) -> Source:
        def was_read(rows: Blocks) -> None:
            file.drop(rows)
            meter.advance(stage, rows.nbytes)

        return Source(file.fetch, was_read)

    def pack(weight: Weight) -> Weight:
        return kernels.pack(pool, weight, source("packing")) if kernels.has_panels(weight) else weight

    try:
        for weight in in_file:
            kernels.check(pool, weight, source("checking"))
        if packs:
            for layer in packables:
                layer.pack(pack)
    except BadBlockError as error:
        tensor, place = file.place_of(error.address)
        raise damaged_weight(tensor, tensor.place_name(place)) from None


def _others(file: GGUFFile, tensor_names: Collection[str], packed: Sequence[Weight]) -> list[Weight]:
    """The matrices that stay in the file. Vectors were looked at as they were read."""
    packed_names = {file.place_of(weight.blocks.ctypes.data)[0].name for weight in packed}
    return [
        Weight(tensor.type, file.data(name))
        for name, tensor in file.tensors.items()
        if name in tensor_names and name not in packed_names and len(tensor.shape) > 1
    ]
