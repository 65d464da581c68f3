"""Experts of any layer on a device: in slots of one size, or a layer at a time for a long prompt."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import torch

from ktdesk_engine.backends.accelerator import HostExperts
from ktdesk_engine.backends.cuda.device_weights import (
    DeviceMatrices,
    Shape,
    empty_matrices,
    fill_from_host,
    matrix_bytes,
    padded,
    shape_of,
)
from ktdesk_engine.backends.cuda.experts import DeviceMlp, DeviceWeight
from ktdesk_engine.backends.cuda.side_stream import SideStream
from ktdesk_engine.kernels import ExpertMlp, ExpertWeight, Ids
from ktdesk_engine.kernels.routing import Routes

if TYPE_CHECKING:
    from ktdesk_engine.backends.cuda.backend import TorchBackend

FLOAT_BYTES = 4


def expert_bytes(mlp: ExpertMlp) -> int:
    """Of one expert on the device, with its biases and scales."""
    parts = (mlp.gate, mlp.up, mlp.down)
    return sum(matrix_bytes(_shape(part)) + _vector_bytes(part) for part in parts)


class ExpertMemory:
    """Slots side by side. What lies in one, the layer says whose expert it is: `view` has all slots in its types."""

    def __init__(
        self, backend: TorchBackend, layers: Sequence[ExpertMlp], num_slots: int, memory: torch.Tensor | None = None
    ) -> None:
        """memory (num_slots * slot_bytes,): where they lie; None: in memory of their own. AcceleratorMemoryError where
        they do not fit."""
        self.num_slots = num_slots
        self.slot_bytes = max(expert_bytes(layer) for layer in layers)
        self._backend = backend
        self._layers = layers
        if memory is None:
            memory = backend.new_bytes(num_slots * self.slot_bytes, what=f"{num_slots} experts")
        self._memory = memory.reshape(num_slots, self.slot_bytes)
        self._views = [self._view(layer) for layer in layers]

    def view(self, layer: int) -> DeviceMlp:
        return self._views[layer]

    def put(self, slot: int, layer: int, expert: int) -> None:
        """Submits the copy of an expert."""
        host, view = self._layers[layer], self._views[layer]
        with self._backend.memory_for("the copy of an expert"):
            for own, to in ((host.gate, view.gate), (host.up, view.up), (host.down, view.down)):
                fill_from_host(to.matrices, slot, own.weight.blocks[expert], self._backend.device)
                for values, place in ((own.bias, to.bias), (own.scale, to.scale)):
                    if values is not None and place is not None:
                        place[slot] = torch.from_numpy(values[expert : expert + 1].copy()).to(place.device)[0]

    def close(self) -> None:
        """Lets the memory go."""
        self._views.clear()
        self._memory = self._memory.new_empty(0, self.slot_bytes)

    def _view(self, mlp: ExpertMlp) -> DeviceMlp:
        memory = _Carver(self._memory)
        gate, up, down = (self._weight(part, memory) for part in (mlp.gate, mlp.up, mlp.down))
        return DeviceMlp(gate, up, down, mlp.activation, mlp.limit, mlp.weighs_inputs)

    def _weight(self, part: ExpertWeight, memory: _Carver) -> DeviceWeight:
        shape = _shape(part)
        return DeviceWeight(
            _in_slots(shape, self.num_slots, self._backend.device, memory),
            None if part.bias is None else memory((self.num_slots, shape.num_rows), torch.float32),
            None if part.scale is None else memory((self.num_slots,), torch.float32),
        )


class _Carver:
    """Gives parts of each slot, one behind the other: tensors (slots, ...) that lead from slot to slot."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._offset = 0

    def __call__(self, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        slot_bytes, inner = self._memory.shape[1], size[1:]
        strides = [prod(inner[i + 1 :]) for i in range(len(inner))]
        view = self._memory.view(-1).view(dtype)
        start = view.storage_offset() + self._offset // dtype.itemsize
        self._offset += padded(prod(inner) * dtype.itemsize)
        return view.as_strided(size, (slot_bytes // dtype.itemsize, *strides), start)


def _in_slots(shape: Shape, num_slots: int, device: torch.device, memory: _Carver) -> DeviceMatrices:
    of_slots = Shape(shape.type, num_slots, shape.num_rows, shape.row_length)
    return empty_matrices(of_slots, device, memory)


def _shape(part: ExpertWeight) -> Shape:
    return shape_of(part.weight.type, part.weight.blocks)


def _vector_bytes(part: ExpertWeight) -> int:
    num_values = [values[0:1].size for values in (part.bias, part.scale) if values is not None]
    return sum(padded(FLOAT_BYTES * count) for count in num_values)


class DeviceSlots:
    """Implements `accelerator.ExpertSlots`."""

    def __init__(
        self,
        backend: TorchBackend,
        layers: Sequence[HostExperts],
        num_slots: int,
        memory: torch.Tensor | None = None,
    ) -> None:
        in_file = [layer.in_file for layer in layers]
        self._memory = ExpertMemory(backend, in_file, num_slots, memory)
        self._table = torch.full((len(layers), in_file[0].num_experts), -1, dtype=torch.int32, device=backend.device)

    @property
    def num_slots(self) -> int:
        return self._memory.num_slots

    @property
    def slot_bytes(self) -> int:
        return self._memory.slot_bytes

    @property
    def side_bytes(self) -> int:
        """Biases and scales lie in the slot."""
        return 0

    def put(self, slot: int, layer: int, expert: int) -> None:
        self._memory.put(slot, layer, expert)

    def set_table(self, slot_of_expert: Ids) -> None:
        self._table.copy_(torch.from_numpy(slot_of_expert.copy()))

    def experts(self, layer: int, x: torch.Tensor, routes: Routes) -> torch.Tensor:
        """The weighted sum of those that have slots, (T, H)."""
        ids, weights = _tensors(routes)
        return self._memory.view(layer)(x, self._table[layer][ids.long()], weights)

    def close(self) -> None:
        self._memory.close()


class DeviceStage:
    """Implements `accelerator.ExpertStage`: the copies run in a stream of their own, where the device has streams."""

    def __init__(self, backend: TorchBackend, layers: Sequence[HostExperts]) -> None:
        in_file = [layer.in_file for layer in layers]
        self._backend = backend
        self._num_experts = in_file[0].num_experts
        self._areas = [ExpertMemory(backend, in_file, self._num_experts) for _ in range(2)]
        self._copies = SideStream(backend.device, 2)

    def load(self, layer: int) -> None:
        area = layer % 2
        with self._copies.filling(area):
            for expert in range(self._num_experts):
                self._areas[area].put(expert, layer, expert)

    def experts(self, layer: int, x: torch.Tensor, routes: Routes) -> torch.Tensor:
        ids, weights = _tensors(routes)
        with self._copies.reading(layer % 2):
            return self._areas[layer % 2].view(layer)(x, ids, weights)

    def fail(self) -> None:
        """Events let nobody wait for what was not submitted."""

    def close(self) -> None:
        for area in self._areas:
            area.close()


def _tensors(routes: Routes) -> tuple[torch.Tensor, torch.Tensor]:
    """What the backend's own router gave."""
    ids, weights = routes
    assert isinstance(ids, torch.Tensor)
    assert isinstance(weights, torch.Tensor)
    return ids, weights
