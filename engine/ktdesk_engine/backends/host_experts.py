"""Experts of any layer side by side in slots of one size, in the forms that the CPU computes with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ktdesk_engine.kernels import CACHE_LINE, Blocks, ExpertMlp, ExpertWeight, Floats, aligned_bytes


class ExpertAreas:
    """Slots: in each the gate, up and down of one expert, one behind the other, each at a cache line.

    What a layer's matrices are, it says itself: `view` has all slots in its types and shapes, whatever lies in them.
    """

    def __init__(self, layers: Sequence[ExpertMlp], num_slots: int, memory: Blocks | None = None) -> None:
        """memory (num_slots * slot_bytes,): another's; None: its own."""
        self.num_slots = num_slots
        self.slot_bytes = max(sum(_padded_bytes(layer)) for layer in layers)
        self._layers = layers
        self._own_bytes = 0 if memory is not None else num_slots * self.slot_bytes
        memory = aligned_bytes(self._own_bytes) if memory is None else memory
        self._memory = memory.reshape(num_slots, self.slot_bytes)
        self._vectors = [_vectors(layers, part, num_slots) for part in range(3)]
        self._views = [self._view(layer) for layer in layers]

    @property
    def num_bytes(self) -> int:
        """Of its own."""
        return self._own_bytes + self.num_slots * self.side_bytes

    @property
    def side_bytes(self) -> int:
        """Of a slot's biases and scales."""
        return sum(array[0].nbytes for arrays in self._vectors for array in arrays.values())

    def view(self, layer: int) -> ExpertMlp:
        """The slots as if each had an expert of this layer: (num_slots, ...)."""
        return self._views[layer]

    def copies(self, slot: int, layer: int, expert: int) -> Iterator[tuple[Blocks, Blocks]]:
        """What is to be copied so that the slot has this expert: from where, and to where."""
        for own, shared in zip(_parts(self._layers[layer]), _parts(self._views[layer]), strict=True):
            yield own.weight.blocks[expert].reshape(-1), shared.weight.blocks[slot].reshape(-1)
            for from_, to in ((own.bias, shared.bias), (own.scale, shared.scale)):
                if from_ is not None and to is not None:
                    yield _bytes_of(from_, expert), _bytes_of(to, slot)

    def _view(self, layer: ExpertMlp) -> ExpertMlp:
        offset, parts = 0, []
        for own, vectors, size in zip(_parts(layer), self._vectors, _padded_bytes(layer), strict=True):
            _, num_rows, row_bytes = own.weight.blocks.shape
            blocks = np.ndarray(
                (self.num_slots, num_rows, row_bytes), np.uint8, self._memory, offset, (self.slot_bytes, row_bytes, 1)
            )
            parts.append(
                ExpertWeight(
                    replace(own.weight, blocks=blocks),
                    None if own.bias is None else vectors["bias"],
                    None if own.scale is None else vectors["scale"],
                )
            )
            offset += size
        return replace(layer, gate=parts[0], up=parts[1], down=parts[2])


def expert_bytes(layer: ExpertMlp) -> int:
    """Of one expert in a slot."""
    return sum(_padded_bytes(layer))


def _parts(layer: ExpertMlp) -> tuple[ExpertWeight, ExpertWeight, ExpertWeight]:
    return layer.gate, layer.up, layer.down


def _padded_bytes(layer: ExpertMlp) -> list[int]:
    """Of one expert's matrices."""
    sizes = [weight.blocks[0].nbytes for weight in layer.weights]
    return [-(-size // CACHE_LINE) * CACHE_LINE for size in sizes]


def _vectors(layers: Sequence[ExpertMlp], part: int, num_slots: int) -> dict[str, Floats]:
    """Biases (slots, rows) and scales (slots,), where a layer has any."""
    parts = [_parts(layer)[part] for layer in layers]
    vectors: dict[str, Floats] = {}
    biases = [weight.bias for weight in parts if weight.bias is not None]
    if biases:
        vectors["bias"] = np.zeros((num_slots, biases[0].shape[1]), np.float32)
    if any(weight.scale is not None for weight in parts):
        vectors["scale"] = np.ones(num_slots, np.float32)
    return vectors


def _bytes_of(values: Floats, index: int) -> Blocks:
    return values[index : index + 1].view(np.uint8).reshape(-1)
